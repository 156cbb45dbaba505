"""Which of the model's actions a step is made of."""

from __future__ import annotations

from collections.abc import Iterator

from quiesce.lab.trace.line import Line

SAID = {
    "publish": "publish",
    "abort": "abort",
    "committed": "commit",
    "fenced": "fence",
    "bound": "bind",
    "done": "send_done",
    "abort_ack": "send_ack",
}
HEARD = {
    "bound": "hear_bound",
    "done": "hear_done",
    "abort_ack": "hear_ack",
    "publish": "bind",
    "abort": "hear_abort",
    "fenced": "hear_fenced",
}
FACTS = {
    "FenceProved": "fence",
    "Ended": "stop",
    "DecodeReplaced": "bury",
    "SourceFenced": "destroy_endpoint",
}
EFFECTS = {
    "Minted": ("reserve",),
    "Attach": ("commit",),
    "Cache": ("cache",),
    "Hold": ("abort",),
    "Quarantine": ("quarantine",),
    "Launch": ("dequeue", "launch"),
    "ReleaseSource": ("reuse_source",),
}
IN_NO_LINE = {
    "what the library, the kernel or the network card does": ("read_source", "tear", "land", "vanish"),
    "a life that ends writes no line of it": ("crash_decode", "crash_prefill", "fence_by_death"),
    "the prefix tree writes no line": ("share", "evict"),
    "a part of other messages": ("say_closed", "hear_closed", "forget_buried"),
}
"""Actions of the model that are no step of a machine; the next lines are judged by what they leave behind."""


IN_PULL = {
    "EndpointClosed": "close_endpoint",
    "Revoked": "revoke",
    "Minted": "reserve",
    "Attach": "commit",
    "Hold": "abort",
    "LaunchRead": "launch",
    "Lend": "offer",
    "TakeBack": "take_back",
    "ReleaseSource": "reuse_source",
}
"""The same for facts and effects where decode reads; other steps have their action's name from elsewhere."""
IN_NO_LINE_OF_PULL = {
    "what the library, the kernel or the network card does": ("serve", "land", "vanish"),
    "a life that ends writes no line of it": ("crash_decode", "crash_prefill"),
    "a part of other messages": ("say_closed",),
}


def actions_of(line: Line, *, is_pull: bool = False) -> Iterator[str]:
    """The actions, a commit's `Attach` and COMMITTED counted once."""
    if is_pull:
        yield from _actions_in_pull(line)
        return
    if line.fact.name in FACTS:
        yield FACTS[line.fact.name]
    if line.fact.name == "WriteSettled":
        yield line.fact["outcome"]
    if line.heard is not None and line.heard.kind in HEARD and line.heard.kind != "publish":
        yield HEARD[line.heard.kind]
    for effect in line.effects:
        yield from EFFECTS.get(effect.name, ())
        if effect.name == "Release":
            yield "finish" if line.fact.name == "Finished" else "release"
    yield from (SAID[said.kind] for said in line.said if said.kind in ("publish", "bound", "done", "abort_ack"))


def _actions_in_pull(line: Line) -> Iterator[str]:
    if line.fact.name == "ReadSettled":
        yield line.fact["outcome"]
    for node in (line.fact, *line.effects):
        if node.name in IN_PULL:
            yield IN_PULL[node.name]
        elif node.name == "Release":
            yield "finish" if line.fact.name == "Finished" else "release"
    yield from ("send_ack" for said in line.said if said.kind == "abort_ack")
