"""Broken and healthy configurations, each with what the doctor must say of it."""

from __future__ import annotations

import pytest

from quiesce.doctor.examination import Inputs, examine
from quiesce.doctor.findings import Severity
from quiesce.doctor.rules import RULES

from .cases import CASES, NAMES, read, seen

SECRETS = ("sk-not-to-be-shown", "sk-x", "secret@", "one-key", "another-key")


@pytest.fixture(autouse=True)
def _beside_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES)


@pytest.mark.parametrize("name", NAMES)
def test_the_case_is_seen_as_expected(name: str) -> None:
    case = read(name)
    diagnosis = examine(case.inputs)
    assert seen(diagnosis) == case.expected
    assert not [secret for secret in SECRETS if secret in repr(diagnosis)]


def test_every_input_has_what_is_expected_of_it() -> None:
    inputs = {path.name for path in CASES.iterdir() if path.suffix not in (".expected", ".env")}
    assert inputs <= set(NAMES)
    assert len(NAMES) >= 30


def test_every_rule_is_found_somewhere() -> None:
    """Except those that only ever leave a question."""
    found = {line.split()[1] for name in NAMES for line in read(name).expected if not line.startswith("not ")}
    assert {rule.id for rule in RULES} - found == {"deployment-not-shown"}


@pytest.mark.parametrize("incident", ["incident.log", "incident.sh", "incident-args", "server-info.json"])
def test_the_incident_is_a_leak(incident: str) -> None:
    diagnosis = examine(read(incident).inputs)
    assert diagnosis.worst is Severity.LEAK
    found = {finding.rule for finding in diagnosis.findings}
    assert {"context-exceeds-pool", "sglang-release-unprotected"} <= found


@pytest.mark.parametrize("repaired", ["incident-repaired.log", "incident-repaired.sh", "incident-args-repaired"])
def test_the_repaired_incident_passes(repaired: str) -> None:
    assert examine(read(repaired).inputs).findings == ()


def test_two_inputs_about_one_process_are_one_member() -> None:
    inputs = Inputs(names=["incident-repaired.log", "sglang-metrics.txt"])
    members = examine(inputs).fleet.members
    assert [member.kinds for member in members] == [frozenset({"log", "metrics"})]


def test_two_processes_that_contradict_each_other_stay_two() -> None:
    inputs = Inputs(names=["incident.log", "server-info.json"], tell=["tenants=one"])
    assert len(examine(inputs).fleet.members) == 1
    other = Inputs(names=["incident-repaired.log", "server-info.json"], tell=["tenants=one"])
    assert len(examine(other).fleet.members) == 2


def test_a_variable_is_recommended_to_those_who_have_it() -> None:
    fixes = {
        version: [
            finding.fix
            for finding in examine(Inputs(arguments=[_LONG], tell=[f"version={version}"])).findings
            if finding.rule == "sglang-batch-uncapped"
        ]
        for version in ("0.5.10", "0.5.20")
    }
    assert fixes["0.5.10"][0].startswith(
        "Bring prefill and decode to SGLang 0.5.23 or newer, then set SGLANG_MOONCAKE_"
    )
    assert fixes["0.5.20"][0].startswith("Set SGLANG_MOONCAKE_MAX_TRANSFER_BATCH_INDICES=1024 on prefill")


_LONG = "sglang serve m --disaggregation-mode prefill --context-length 400000"


def test_a_router_of_vllm_is_not_replaced_by_one_that_does_not_drive_it() -> None:
    (finding,) = (found for found in examine(read("toy-proxy.sh").inputs).findings if "router" in found.rule)
    assert "a toy proxy from vLLM's examples" in finding.says
    assert "ours" not in finding.fix
    assert "sglang" not in finding.fix
