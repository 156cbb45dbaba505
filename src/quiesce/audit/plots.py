"""Drawings as inline SVG: numbers and words of ours only, no script."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from statistics import median

from quiesce.audit.intervals import Rate
from quiesce.audit.observation import Comparison, Observation
from quiesce.audit.plan import Arm
from quiesce.audit.tenancy import AGAIN, KNOWN, NEW, WARMS

WIDTH, LEFT, RIGHT, ROW = 720, 190, 30, 34
_SPAN = WIDTH - LEFT - RIGHT


def intervals(rows: Sequence[tuple[str, Rate]], label: str, hit: str) -> str:
    """A dot for each rate and a line for its interval, on a common scale from 0; `hit` is the colour of any hit."""
    top = _round_top(max([rate.high for _, rate in rows if rate.trials] or [1.0]))
    scale = _SPAN / max(top, 1e-6)
    marks = []
    for number, (name, rate) in enumerate(rows):
        y = ROW * number + 20
        marks.append(text(LEFT - 12, y + 4, name, "end"))
        if not rate.trials:
            marks.append(text(LEFT, y + 4, "none", "start", "faint"))
            continue
        low, value, high = (LEFT + each * scale for each in (rate.low, rate.value, rate.high))
        marks.append(f'<line class="whisker" x1="{low:.1f}" x2="{high:.1f}" y1="{y}" y2="{y}"/>')
        marks.append(f'<circle class="{hit if rate.hits else "good"}" cx="{value:.1f}" cy="{y}" r="5"/>')
        marks.append(text(min(high + 8, WIDTH - 60), y - 7, f"{rate.hits}/{rate.trials}", "start", "faint"))
    height = ROW * len(rows) + 34
    grid = axis(height - 26, [(top * i / 4, f"{100 * top * i / 4:g} %") for i in range(5)], top)
    return drawing(height, label, [*grid, *marks])


def _round_top(high: float) -> float:
    """The least of a few round shares that is no less."""
    return next((top for top in (0.01, 0.02, 0.04, 0.1, 0.2, 0.4, 0.6, 0.8) if high <= top), 1.0)


def schedule(seen: Sequence[Observation], compared: Sequence[Comparison]) -> str:
    """When each donor left, in order or by reset, and what its victim's answer was like."""
    victims = {each.after: each for each in seen if each.arm == Arm.ABORT and each.after is not None}
    equal = {each.victim: each.is_equal for each in compared}
    donors = [each for each in seen if each.manner is not None]
    if not donors:
        return ""
    top = max([1.2, *(each.leave_ttfts or 0.0 for each in donors)])
    marks = [text(LEFT - 12, 36 + 70 * row, name, "end") for row, name in enumerate(("close", "reset"))]
    for number, donor in enumerate(donors):
        x = LEFT + _SPAN * (donor.leave_ttfts if donor.leave_ttfts is not None else top) / top
        y = 14 + 70 * (donor.manner == "reset") + number * 7 % 46
        marks.append(f'<circle class="{_colour(victims.get(donor.ask), equal)}" cx="{x:.1f}" cy="{y}" r="4"/>')
    ticks = [(each / 4, f"{each / 4:g}") for each in range(int(top * 4))]
    return drawing(176, "When donors left", [*axis(150, [*ticks, (top, "answering")], top), *marks])


def _colour(victim: Observation | None, equal: dict[int, bool]) -> str:
    if victim is None or victim.ask not in equal:
        return "bad" if victim is not None and victim.hits else "none"
    if victim.hits:
        return "bad"
    return "good" if equal[victim.ask] else "differs"


def times(seen: Sequence[Observation]) -> str:
    """Times to the first token of the two keys' questions, each a dot; the median a line."""
    rows = [
        (role, [1000 * (each.ttft_s or each.total_s) for each in seen if each.role == role and each.is_answer])
        for role in (WARMS, AGAIN, NEW, KNOWN)
    ]
    if not all(values for _, values in rows):
        return ""
    top = 1.05 * max(max(values) for _, values in rows)
    marks = []
    for number, (role, values) in enumerate(rows):
        y = ROW * number + 18
        marks.append(text(LEFT - 12, y + 4, role, "end"))
        marks += [f'<circle class="none" cx="{LEFT + _SPAN * each / top:.1f}" cy="{y}" r="4"/>' for each in values]
        x = LEFT + _SPAN * median(values) / top
        marks.append(f'<line class="median" x1="{x:.1f}" x2="{x:.1f}" y1="{y - 11}" y2="{y + 11}"/>')
    height = ROW * len(rows) + 34
    grid = axis(height - 26, [(top * i / 4, f"{top * i / 4:.0f} ms") for i in range(5)], top)
    return drawing(height, "Times to the first token", [*grid, *marks])


def axis(y: float, ticks: Sequence[tuple[float, str]], top: float) -> Iterator[str]:
    yield f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
    for value, name in ticks:
        x = LEFT + _SPAN * value / max(top, 1e-6)
        yield f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="4" y2="{y + 4}"/>'
        yield text(x, y + 18, name, "middle", "faint")


def text(x: float, y: float, words: str, anchor: str, style: str = "") -> str:
    return f'<text class="{style}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(words)}</text>'


def drawing(height: float, label: str, marks: Sequence[str]) -> str:
    """All `marks`, as a drawing that is inline or a file of its own."""
    size = f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}"'
    return f'<svg {size} role="img" aria-label="{html.escape(label)}">{"".join(marks)}</svg>'
