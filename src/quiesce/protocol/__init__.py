"""The hand-off protocol, pure: no clock, socket, thread, randomness or array. Inputs are facts, outputs are data.

=============================================  ====================================================================
`messages`, `wire`, `hello`                    what decode and prefill say to each other, and as which bytes
`receiver_io`, `receiver`, `receiver_holds`    decode's machine: facts and effects, the way to a commit, holds
`attempt`, `receiver_rules`, `decode_turn`     its state, its decisions one by one, one step under way
`sender_io`, `sender`, `sender_*`              prefill's machine, divided the same way; `record` is its state
`puller_io`, `puller`, `puller_*`              decode's machine where decode reads; `decode_steps` is both machines'
`lender_io`, `lender`, `lender_windows`        prefill's machine where decode reads; the rest of it is the sender's
`reasons`                                      why an input changed nothing
`dispatch`, `pairing`, `admission`             router and worker: frames, the machine of one try, the doors
`invariants`, `trace`                          what must always hold; one step as one line
=============================================  ====================================================================

Every branch is covered by its own tests::

    coverage run --branch --source=src/quiesce/protocol -m pytest tests/protocol -m "not slow"
    coverage report --fail-under=100
"""
