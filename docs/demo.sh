#!/usr/bin/env bash
# Starts a server in the background, asks it something, shows the answer, stops the server. `make demo` runs it.
set -euo pipefail
port=${PORT:-0}
if [ "$port" = 0 ]; then
  port=$(python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
fi

quiesce serve --port "$port" "$@" &
server=$!
trap 'kill -TERM $server 2>/dev/null; wait $server 2>/dev/null || true' EXIT

python - "$port" "$server" <<'PY'
import json, os, sys, time, urllib.error, urllib.request

base, server = f"http://127.0.0.1:{sys.argv[1]}", int(sys.argv[2])
question = {
    "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}],
    "temperature": 0,
    "max_tokens": 40,
}


def ready() -> bool:
    try:
        with urllib.request.urlopen(f"{base}/readiness", timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


deadline = time.monotonic() + 300
while not ready():
    os.kill(server, 0)  # raises when the server is gone: its own words are above
    if time.monotonic() > deadline:
        sys.exit("the server was not ready within five minutes")
    time.sleep(0.2)

request = urllib.request.Request(
    f"{base}/v1/chat/completions", json.dumps(question).encode(), {"Content-Type": "application/json"}
)
with urllib.request.urlopen(request, timeout=120) as answer:
    reply = json.load(answer)
print()
print("question:", question["messages"][0]["content"])
print("answer:  ", reply["choices"][0]["message"]["content"].strip())
print("usage:   ", reply["usage"])
PY
