"""`quiesce doctor` as people run it: exit codes, formats, and what is wrong with a command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quiesce.cli.main import main
from quiesce.doctor.rules import RULES

CASES = Path(__file__).parents[1] / "doctor" / "cases"


def case(name: str) -> str:
    return str(CASES / name)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["doctor", case("incident.log")], 1),
        (["doctor", case("incident-repaired.sh")], 0),
        (["doctor", case("bootstrap-published.yaml")], 0),
        (["doctor", case("bootstrap-published.yaml"), "--fail-on", "exposure"], 1),
        (["doctor", case("incident.log"), "--fail-on", "leak"], 1),
        (["doctor", case("test-faults.sh"), "--fail-on", "leak"], 0),
        (["doctor", "--args", "quiesce serve"], 0),
        (["doctor", "--args", "quiesce serve --unsafe-release-on-timeout"], 1),
        (["doctor", "--args", "sglang serve m --disagregation-mode prefill"], 1),
        (["doctor", "--args", "sglang serve m --disaggregation-mode prefil"], 1),
        (["doctor", "--args", "vllm serve m --kv-transfer-config {kv_connector:NixlConnector}"], 1),
        (["doctor", "http://127.0.0.1:1"], 4),
    ],
)
def test_exit_codes(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "Nothing to examine. Give a file, an address, or --args"),
        (["/no/such"], "/no/such does not exist; nothing was examined."),
        ([case("cases.py")], "does not exist"),
        (["--args", "--port 8000"], "cannot tell whose flags these are"),
        (["--args", "sglang serve 'm"], "a ' is never closed"),
        (["--args", "quiesce serve", "--tell", "colour=blue"], "--tell colour=blue: cannot be told."),
        (["--args", "quiesce serve", "--tell", "tenants=2"], "--tell tenants is one or several."),
        (["--args", "quiesce serve", "--tell", "aborts-per-s=many"], "must be a number"),
        (["--explain", "nothing"], "there is no such rule"),
        (["--args", "x", "--key-file", "/no/such"], "--key-file /no/such: cannot be read."),
        ([str(Path(__file__))], "cannot tell what this is. Say it with --kind"),
    ],
)
def test_usage(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_that_starts_nothing_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "compose.yaml"
    file.write_text("services:\n  web:\n    image: nginx\n")
    assert main(["doctor", str(file)]) == 2
    assert "Nothing was found that starts or is a server." in capsys.readouterr().err


@pytest.mark.parametrize("shape", ["json", "sarif"])
def test_formats_are_json(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", case("incident.log"), "--format", shape]) == 1
    assert json.loads(capsys.readouterr().out)


def test_rules_are_listed_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--list-rules"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed] == [rule.id for rule in RULES]
    assert main(["doctor", "--explain", "context-exceeds-pool"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("context-exceeds-pool (leak): ")
    assert "source: https://github.com/sgl-project/sglang/pull/38935" in told


def test_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with (CASES / "incident.sh").open() as file:
        monkeypatch.setattr("sys.stdin", file)
        assert main(["doctor", "-"]) == 1
    assert "at   -:8: --context-length 1048576" in capsys.readouterr().out
