"""The three reports say the same; SARIF is what its readers expect; the page of rules is up to date."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema_rs
import msgspec
import pytest

from quiesce.cli.tree import EVERY_NAME
from quiesce.doctor.answers import read_json, read_metrics
from quiesce.doctor.dialects import QUIESCE
from quiesce.doctor.documents import Document
from quiesce.doctor.examination import Inputs, examine
from quiesce.doctor.findings import Diagnosis
from quiesce.doctor.fleet import Engine, Field, Role
from quiesce.doctor.reference import page
from quiesce.doctor.report import as_json, as_text
from quiesce.doctor.rules import RULES
from quiesce.doctor.sarif import as_sarif
from quiesce.router.front.views import ServerInfo
from quiesce.telemetry.table import METRICS

from .cases import CASES

PAGE = Path(__file__).parents[2] / "docs" / "doctor-rules.md"

TEXT = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string", "minLength": 1}}}
LEVEL = {"enum": ["none", "note", "warning", "error"]}
LOCATION = {
    "type": "object",
    "properties": {
        "message": TEXT,
        "physicalLocation": {
            "required": ["artifactLocation"],
            "properties": {
                "artifactLocation": {"required": ["uri"], "properties": {"uri": {"format": "uri-reference"}}},
                "region": {"properties": {"startLine": {"type": "integer", "minimum": 1}}},
            },
        },
        "logicalLocations": {"items": {"required": ["fullyQualifiedName"]}, "minItems": 1},
    },
    "additionalProperties": False,
}
RESULT = {
    "type": "object",
    "required": ["message", "ruleId", "ruleIndex", "level", "locations"],
    "properties": {
        "message": TEXT,
        "level": LEVEL,
        "ruleIndex": {"type": "integer", "minimum": 0},
        "locations": {"items": LOCATION, "minItems": 1},
    },
}
DRIVER = {
    "required": ["name", "rules"],
    "properties": {
        "name": {"type": "string"},
        "rules": {
            "uniqueItems": True,
            "items": {
                "required": ["id"],
                "properties": {
                    "helpUri": {"format": "uri"},
                    "shortDescription": TEXT,
                    "fullDescription": TEXT,
                    "defaultConfiguration": {"properties": {"level": LEVEL}},
                },
            },
        },
    },
}
RUN = {
    "required": ["tool", "results"],
    "properties": {
        "tool": {"required": ["driver"], "properties": {"driver": DRIVER}},
        "results": {"items": RESULT},
        "invocations": {
            "items": {
                "required": ["executionSuccessful"],
                "properties": {
                    "toolExecutionNotifications": {"items": {"required": ["message"], "properties": {"message": TEXT}}}
                },
            }
        },
        "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
    },
}
SARIF = {
    "type": "object",
    "required": ["version", "runs"],
    "properties": {"version": {"const": "2.1.0"}, "$schema": {"format": "uri"}, "runs": {"items": RUN, "minItems": 1}},
}
"""What SARIF 2.1.0 demands of the parts that are used here, written down from the standard."""


@pytest.fixture
def incident(monkeypatch: pytest.MonkeyPatch) -> Diagnosis:
    monkeypatch.chdir(CASES)
    return examine(Inputs(names=["incident.log", "incident.sh", "quiesce-metrics.txt"], arguments=["vllm serve m"]))


def test_the_text_names_each_finding_with_place_and_fix(incident: Diagnosis) -> None:
    told = as_text(incident)
    for finding in incident.findings:
        assert f"{finding.severity.upper()} {finding.rule}: {finding.title}" in told
        assert all(f"at   {place.place}" in told for place in finding.where)
    assert "not told: " in told
    assert told.splitlines()[-1].startswith("Found: ")


def test_the_text_of_nothing_found_does_not_promise_more() -> None:
    told = as_text(examine(Inputs(names=[str(CASES / "healthy-nixl.sh")])))
    assert told.endswith("Nothing found; 2 workers were examined. What was not told could change that.\n")


def test_the_last_line_counts() -> None:
    one = as_text(examine(Inputs(arguments=["sglang serve m"])))
    assert one.endswith("Nothing found; 1 worker was examined. What was not told could change that.\n")
    several = as_text(examine(Inputs(names=[str(CASES / "routers.sh")])))
    assert several.endswith("Found: 2 leaks, 3 hangs, 3 advice.\n")


def test_an_open_door_is_explained_by_those_who_made_it() -> None:
    told = as_text(examine(Inputs(arguments=["sglang serve m --host 0.0.0.0"])))
    assert "EXPOSURE open-api" in told
    assert "docs.sglang.io" in told
    assert "vllm" not in told


def test_json_holds_the_findings(incident: Diagnosis) -> None:
    told = json.loads(as_json(incident))
    assert [finding["rule"] for finding in told["findings"]] == [finding.rule for finding in incident.findings]
    assert told["findings"][0].keys() == {"rule", "severity", "title", "where", "says", "why", "fix", "sources"}
    assert [member["role"] for member in told["members"]].count("decode") == 2  # the log and the script are of one


def test_sarif_is_valid(incident: Diagnosis) -> None:
    validator = jsonschema_rs.Draft202012Validator(SARIF, validate_formats=True)
    told = json.loads(as_sarif(incident))
    assert [str(error) for error in validator.iter_errors(told)] == []
    (run,) = told["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert all(rules[result["ruleIndex"]]["id"] == result["ruleId"] for result in run["results"])
    assert len(run["results"]) == len(incident.findings)
    assert len(run["invocations"][0]["toolExecutionNotifications"]) == len(incident.untold)


def test_sarif_names_a_file_and_its_line() -> None:
    told = json.loads(as_sarif(examine(Inputs(names=[str(CASES / "incident.sh")]))))
    place = told["runs"][0]["results"][0]["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == (CASES / "incident.sh").as_uri()
    assert place["region"] == {"startLine": 8}


def test_the_page_is_up_to_date() -> None:
    """Else run `make docs`."""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_rules_have_their_own_ids_and_sources() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert [rule.id for rule in RULES if not rule.sources or not rule.why or not rule.title] == []
    files = {source for rule in RULES for source in rule.sources if "://" not in source}
    assert [file for file in files if not (PAGE.parents[1] / file).exists()] == []


def test_our_settings_are_those_that_there_are() -> None:
    assert {name.replace("-", "_") for name in QUIESCE} <= set(EVERY_NAME)


def test_our_fronts_are_known_as_ours() -> None:
    """They answer in SGLang's shape."""
    about = ("smollm2", "smollm2", "smollm2", "prefill", 9000, "127.0.0.1", 9000)
    info = ServerInfo(*about, 8192, 65536, 16, 256, "prefill-0", "ready")
    (member,) = read_json(Document("front", msgspec.json.encode(info).decode()))
    assert (member.engine, member.role) == (Engine.QUIESCE, Role.PREFILL)
    assert (member.number(Field.CONTEXT_TOKENS), member.number(Field.POOL_TOKENS)) == (8192, 65536)


def test_our_metrics_are_those_that_there_are() -> None:
    known = {metric.exposed_name for metric in METRICS}
    used = {"quiesce_pages", "quiesce_unsafe_releases_total", "quiesce_releases_total", "quiesce_tag_mismatches_total"}
    assert used <= known
    text = "".join(f'{name}{{role="decode",worker="d",state="quarantined"}} 1\n' for name in sorted(used))
    (member,) = read_metrics(Document("m", text))
    assert len(member.facts) == 5
