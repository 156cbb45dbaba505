"""The report for a CI: a test case for each check."""

from __future__ import annotations

from xml.etree import ElementTree

from quiesce.audit.report import Report
from quiesce.audit.verdict import Check, Status


def as_junit(report: Report) -> str:
    """JUnit XML: suspected checks are failures, those that were not made are skipped; a warning passes, and says so."""
    checks = report.verdict.checks
    suite = ElementTree.Element(
        "testsuite",
        name=f"quiesce audit {report.target.url}",
        tests=str(len(checks)),
        failures=str(sum(check.status is Status.SUSPECTED for check in checks)),
        skipped=str(sum(check.status is Status.NOT_TESTED for check in checks)),
        errors="0" if report.verdict.is_usable else "1",
        time=str(report.took_s),
        timestamp=report.began,
    )
    for check in checks:
        suite.append(_case(check))
    if not report.verdict.is_usable:
        case = ElementTree.SubElement(suite, "testcase", classname="quiesce.audit", name="answers")
        ElementTree.SubElement(case, "error", message=report.headline)
    ElementTree.SubElement(suite, "system-out").text = f"again: {report.replay}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _case(check: Check) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname="quiesce.audit", name=check.name)
    details = "\n".join((check.said, *check.details))
    match check.status:
        case Status.SUSPECTED:
            ElementTree.SubElement(case, "failure", message=check.title).text = details
        case Status.NOT_TESTED:
            ElementTree.SubElement(case, "skipped", message=check.said)
        case Status.PASSED | Status.WARNING:
            ElementTree.SubElement(case, "system-out").text = f"{check.status}: {details}"
    return case
