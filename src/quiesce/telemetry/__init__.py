"""One table of metrics, their exposition and merging, and structured logs. It never sees a prompt or an answer."""
