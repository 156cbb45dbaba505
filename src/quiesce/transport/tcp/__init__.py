"""One-sided writes over our own TCP streams: the receiver checks each write against its lease before placing it."""
