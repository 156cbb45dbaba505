"""Words that are not understood: what depends on them is not judged, so silence would say too much."""

from __future__ import annotations

from quiesce.doctor.findings import Hit, Rule, Seen, Severity, Unknown, label
from quiesce.doctor.fleet import Fleet
from quiesce.doctor.rules.links import SGLANG_PD, VLLM_NIXL


def _misread(fleet: Fleet) -> Seen:
    for member in fleet.members:
        for word in member.misread:
            what = f"{word.word} of {label(member)}: {word.why}"
            yield Unknown(what, word.remedy, "not told" if word.template else "not understood")
            if word.decides and not word.template:
                yield Hit(
                    (word.evidence,),
                    f"{label(member)}: {word.word} is not understood: {word.why}. So {word.decides} is not known, and "
                    "what depends on it was not judged.",
                    word.remedy,
                )


RULES = (
    Rule(
        id="not-understood",
        severity=Severity.HANG,
        title="What decides the role or the connector is not understood",
        why="A process whose role or connector is misspelt does not start, or starts as something else than half of "
        "a pair; and no rule can judge what it would have been.",
        sources=(SGLANG_PD, VLLM_NIXL),
        check=_misread,
    ),
)
