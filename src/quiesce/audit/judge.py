"""From observations to a verdict: pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from quiesce.audit.claims import claims_check
from quiesce.audit.exact_tests import Stratum, more_in_treated
from quiesce.audit.intervals import difference, rate
from quiesce.audit.long_prompts import long_check
from quiesce.audit.marker import LENGTH, Hit, false_positive_bound
from quiesce.audit.observation import Comparison, Observation, Observed, Outcome
from quiesce.audit.plan import Arm, Plan
from quiesce.audit.target import Target
from quiesce.audit.tenancy import cached_check, timing_check
from quiesce.audit.verdict import ALPHA, DOUBT, ArmRow, Check, Status, Verdict, made

_ARMS = (Arm.SEQUENTIAL, Arm.CONCURRENT, Arm.ABORT)


def judge(plan: Plan, target: Target, observed: Observed) -> Verdict:
    """Every check, also those that could not be made."""
    seen, compared = observed.observations, observed.comparisons
    letters, markers = sum(each.letters for each in seen), len(plan.markers)
    wanted = [each for each in seen if each.role in ("victim", "solo")]
    skipped = sum(each.outcome is Outcome.SKIPPED for each in seen)
    return Verdict(
        checks=(
            marker_check(plan, seen),
            divergence_check(plan, compared),
            ends_check(seen),
            claims_check(seen),
            long_check(plan, target, seen),
            cached_check(seen),
            timing_check(seen),
        ),
        arms=tuple(_row(arm, seen, compared) for arm in _ARMS if _victims(arm, seen)),
        wanted=len(wanted),
        answered=sum(each.is_answer for each in wanted),
        letters=letters,
        markers=markers,
        run=plan.run,
        false_positives=false_positive_bound(letters, markers, plan.run),
        false_whole=false_positive_bound(letters, markers, LENGTH),
        untested=(*_missing(skipped, observed.unasked), *plan.untested),
        is_whole=not observed.unasked,
    )


def _missing(skipped: int, unasked: int) -> Iterator[str]:
    if unasked:
        yield f"{unasked} requests: the audit was stopped early"
    if skipped:
        yield f"{skipped} requests: the budget was spent"


def _victims(arm: Arm, seen: Iterable[Observation]) -> list[Observation]:
    return [each for each in seen if each.role == "victim" and each.arm == arm]


def _row(arm: Arm, seen: Sequence[Observation], compared: Sequence[Comparison]) -> ArmRow:
    victims = _victims(arm, seen)
    pairs = [each for each in compared if each.arm == arm]
    return ArmRow(
        arm=arm.value,
        asked=len(victims),
        answered=sum(each.is_answer for each in victims),
        diverged=rate(sum(not each.is_equal for each in pairs), len(pairs)),
        marked=rate(sum(bool(each.hits) for each in victims), len(victims)),
        unfinished=rate(sum(not each.is_answer for each in victims), len(victims)),
    )


# ---------------------------------------------------------------- foreign markers


def marker_check(plan: Plan, seen: Sequence[Observation]) -> Check:
    """A marker in an answer to somebody who never said it."""
    searched = [each for each in seen if each.letters]
    marked = [each for each in searched if each.hits]
    found = rate(len(marked), len(searched))
    letters = sum(each.letters for each in searched)
    bound = false_positive_bound(letters, len(plan.markers), plan.run)
    sure = f"were the target clean, the probability of any would be at most {bound:.2g}"
    if not searched:
        status, said = Status.NOT_TESTED, "No answer had text."
    elif marked:
        status, said = Status.SUSPECTED, f"{len(marked)} of {len(searched)} answers show markers of others; {sure}."
    else:
        status = Status.PASSED
        said = f"None in {len(searched)} answers: with 95 % confidence fewer than {found.high:.2%} of such show one."
    owners = {marker: (ask.role, ask.arm.value) for ask in plan.asks for marker in ask.own}
    details = [_accusation(each, hit, owners) for each in marked for hit in each.hits]
    return made("markers", "Foreign markers in answers", status, said, details, found=found)


def _accusation(each: Observation, hit: Hit, owners: dict[int, tuple[str, str]]) -> str:
    role, arm = owners[hit.marker]
    what = "the whole" if hit.is_whole else f"{hit.count} of {LENGTH} syllables of"
    return (
        f"request {each.ask} ({each.role}, {each.arm}) shows {what} marker {hit.marker}, planted by a {role} ({arm}): "
        f"{hit.excerpt}"
    )


# ---------------------------------------------------------------- divergence


def divergence_check(plan: Plan, compared: Sequence[Comparison]) -> Check:
    """Greedy answers under load beside the same questions asked alone."""
    title = "Answers that differ from when they are asked alone"
    strange = [each for each in compared if not each.is_equal]
    found = rate(len(strange), len(compared))
    details = [
        f"victim {each.victim} ({each.arm}) and its solo agree for {each.same_chars} of {each.chars} characters"
        for each in strange
    ]
    if not compared:
        return made("divergence", title, Status.NOT_TESTED, "No victim was answered both times.", [], found=found)
    if plan.options.bit_exact:
        status = Status.SUSPECTED if strange else Status.PASSED
        said = f"{len(strange)} of {len(compared)} differ, and the target promises that none does (--bit-exact)."
        return made("divergence", title, status, said, details, found=found)
    treated, control = (
        (Arm.ABORT, Arm.CONCURRENT) if plan.options.allow_aborts else (Arm.CONCURRENT, Arm.SEQUENTIAL)
    )  # fmt: skip
    if empty := [arm for arm in (treated, control) if not any(each.arm == arm for each in compared)]:
        said = f"No victim of the arm {empty[0]} was answered both times."
        return made("divergence", title, Status.NOT_TESTED, said, details, found=found)
    p = more_in_treated(_strata(treated, control, [(each.arm, each.stratum, not each.is_equal) for each in compared]))
    said = f"{_contrast(treated, control, compared)} (p = {p:.3g}; where arithmetic depends on the batch, some do)."
    if p >= DOUBT:
        status = Status.PASSED
    elif p < ALPHA and treated is Arm.ABORT:
        status = Status.SUSPECTED
    else:
        status, said = Status.WARNING, f"{said} Ask again with more --victims."
    return made("divergence", title, status, said, details, found=found, p=p)


def _contrast(treated: Arm, control: Arm, compared: Sequence[Comparison]) -> str:
    rates = [
        rate(sum(not each.is_equal for each in compared if each.arm == arm), sum(each.arm == arm for each in compared))
        for arm in (treated, control)
    ]
    apart = difference(*rates)
    shown = " against ".join(
        f"{each.hits} of {each.trials} ({arm})" for arm, each in zip((treated, control), rates, strict=True)
    )
    return f"{shown} differ: a difference of {apart.value:+.1%}, 95 % interval {apart.low:+.1%} to {apart.high:+.1%}"


def _strata(treated: Arm, control: Arm, outcomes: Sequence[tuple[str, int, bool]]) -> list[Stratum]:
    """(arm, stratum, hit) by stratum."""

    def count(arm: Arm, stratum: int) -> tuple[int, int]:
        hits = [hit for name, number, hit in outcomes if name == arm and number == stratum]
        return len(hits), sum(hits)

    numbers = sorted({number for _, number, _ in outcomes})
    return [Stratum(*count(treated, number), *count(control, number)) for number in numbers]


# ---------------------------------------------------------------- how answers end


def ends_check(seen: Sequence[Observation]) -> Check:
    """Answers cut short. A server that notices foreign context ends the answer by an error, which is no leak."""
    title = "Victims without an answer"
    victims = [each for each in seen if each.role == "victim" and each.outcome is not Outcome.SKIPPED]
    lost = [each for each in victims if not each.is_answer]
    found = rate(len(lost), len(victims))
    if not victims:
        return made("ends", title, Status.NOT_TESTED, "No victim was asked.", [], found=found)
    outcomes = [(each.arm, each.stratum, not each.is_answer) for each in victims]
    p = more_in_treated(_strata(Arm.ABORT, Arm.CONCURRENT, outcomes))
    said = f"{len(lost)} of {len(victims)} were not answered to the end"
    if more := p < ALPHA:
        said += f"; significantly more of them where others had left (p = {p:.3g})"
    details = [f"request {each.ask} ({each.arm}): {_end(each)}" for each in lost]
    status = Status.WARNING if more or len(lost) * 10 > len(victims) else Status.PASSED
    return made("ends", title, status, f"{said}.", details, found=found, p=p)


def _end(each: Observation) -> str:
    words = [each.outcome.value, f"HTTP {each.status}" if each.status else "", each.code]
    return ", ".join(word for word in words if word)
