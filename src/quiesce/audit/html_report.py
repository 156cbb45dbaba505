"""The report as one HTML page that loads nothing and runs no script."""

from __future__ import annotations

from importlib.resources import files

import jinja2

from quiesce.audit import plots
from quiesce.audit.report import Report
from quiesce.audit.text_report import show_rate
from quiesce.audit.verdict import ALPHA


def as_html(report: Report) -> str:
    """Everything that is no drawing of ours is escaped."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["rate"] = show_rate
    page = environment.from_string(files("quiesce.audit").joinpath("page.html").read_text(encoding="utf-8"))
    arms = report.verdict.arms
    return page.render(
        report=report,
        verdict=report.verdict,
        alpha=ALPHA,
        divergence=plots.intervals([(row.arm, row.diverged) for row in arms], "Answers that differ, by arm", "differs"),
        markers=plots.intervals([(row.arm, row.marked) for row in arms], "Foreign markers, by arm", "bad"),
        schedule=plots.schedule(report.observations, report.comparisons),
        times=plots.times(report.observations),
    )
