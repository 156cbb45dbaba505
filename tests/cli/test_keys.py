"""`quiesce keys`: a key is shown once, on stdout and alone; the file gets its hash."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.cli.main import main
from quiesce.router.tenants import digest_of
from quiesce.router.tenants_file import read_tenants


def test_a_new_key_is_in_the_file_as_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tenants.toml"
    assert main(["keys", "new", "--tenant", "alice", "--file", str(file)]) == 0
    said = capsys.readouterr()
    key = said.out.strip()
    assert key not in said.err
    assert key not in file.read_text()
    (known,) = read_tenants(file, b"")[0].keys
    assert (known.digest, known.tenant) == (digest_of(key), "alice")


def test_without_a_file_the_lines_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--tenant", "alice"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith('[[key]]\ntenant = "alice"\n')
    assert digest_of(said.out.strip()).hex() in said.err


def test_a_name_that_cannot_be_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["keys", "new", "--tenant", "a b"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "a name has 1 to 64 letters" in said.err


def test_a_file_is_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tenants.toml"
    main(["keys", "new", "--tenant", "alice", "--file", str(file)])
    file.write_text(file.read_text() + "[tenant.bob]\nweight = 2\nrequests-per-minute = 60\n")
    capsys.readouterr()
    assert main(["keys", "check", str(file)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "default: keys 0",
        "alice: keys 1",
        "bob: keys 0, weight 2, requests-per-minute 60",
    ]
    file.write_text("[tenant.a]\nweight = 0\n")
    assert main(["keys", "check", str(file)]) == 2
    assert "[tenant.a]: Expected `int` >= 1" in capsys.readouterr().err
