"""What is reported, whatever the form: a value that can be shown without asking anybody else."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import msgspec

from quiesce import __version__
from quiesce.audit.observation import Comparison, Observation, Observed
from quiesce.audit.options import Options
from quiesce.audit.plan import Plan
from quiesce.audit.target import Target
from quiesce.audit.verdict import Verdict


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """No field holds text that the endpoint wrote; `began` is ISO 8601."""

    version: str
    began: str
    replay: str
    options: Options
    target: Target
    victims_per_arm: int
    verdict: Verdict
    requests: int
    tokens: int
    took_s: float
    comparisons: tuple[Comparison, ...]
    observations: tuple[Observation, ...]

    @property
    def headline(self) -> str:
        if self.verdict.is_suspected:
            return "A leak is suspected."
        if not self.verdict.is_usable:
            return "Too little was answered to say anything."
        if not self.verdict.is_whole:
            return "Stopped early; no leak was seen until then."
        return "No leak was seen."


def make_report(plan: Plan, target: Target, observed: Observed, verdict: Verdict, *, began: str, extra: str) -> Report:
    """`extra` are words of the command line that are no options of an audit, such as the file of a key."""
    return Report(
        version=__version__,
        began=began,
        replay=replay(plan.options, target.url, extra),
        options=plan.options,
        target=target,
        victims_per_arm=plan.victims,
        verdict=verdict,
        requests=len(observed.observations),
        tokens=observed.spent_tokens,
        took_s=round(observed.took_s, 2),
        comparisons=observed.comparisons,
        observations=observed.observations,
    )


def replay(options: Options, url: str, extra: str = "") -> str:
    """The command that asks the same again: the seed, and every option that is not the default."""
    words = " ".join(["quiesce audit", shlex.quote(url), *(shlex.quote(word) for word in _words(options))])
    return f"{words} {extra}".rstrip()


FLAGS = {"answer_tokens": "--answer-tokens", "rate_per_s": "--rate"}
"""Options whose flag is called otherwise."""


def _words(options: Options) -> Iterator[str]:
    usual = Options(seed=-1)
    for name in options.__struct_fields__:
        value = getattr(options, name)
        if value == getattr(usual, name) or name == "two_keys":
            continue
        yield FLAGS.get(name, "--" + name.removesuffix("_s").replace("_", "-"))
        if value is not True:
            yield f"{value:g}" if isinstance(value, float) else str(value)


def as_json(report: Report) -> str:
    """The whole report, indented; field names are those of the structs."""
    body = msgspec.to_builtins(report)
    body["headline"], body["exit_code"] = report.headline, report.verdict.exit_code
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode() + "\n"
