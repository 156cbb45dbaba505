"""Control connections: bounded, validated frames between processes of one user over Unix sockets, or of hosts over TLS.

`listener`, `tcp_listener` and `dialing` make connections, `first_frame` asks a new one what it wants, `handshake` lets
two workers find out whether they fit, and `stream` carries frames from then on. The loss of a stream is an input to the
machines.
"""
