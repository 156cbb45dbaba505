"""`quiesce lab trace` reads files, directories and bundles, and says by its exit code what it found."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from quiesce.cli.main import main
from tests.lab.trace.test_edited import DECODE, PREFILL, change, story


def write(directory: Path) -> dict[str, Path]:
    directory.mkdir()
    paths = {name: directory / f"{name}.txt" for name in (DECODE, PREFILL)}
    for name, path in paths.items():
        path.write_text("\n".join(["# a line of somebody else", *story()[name]]), encoding="utf-8")
    return paths


def test_files_and_directories(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = write(tmp_path / "trace")
    for words in (map(str, paths.values()), [str(tmp_path / "trace")]):
        assert main(["lab", "trace", "--idle", *words]) == 0
        said = capsys.readouterr().out
        assert f"{DECODE}: steps 1 to " in said
        assert said.endswith("every step is one of the model's\n")


def test_a_breach_is_named_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = story()
    change(DECODE, "abort_ack()", "proof=drained", "proof=timeout")(files)
    path = tmp_path / "decode-0.txt"
    path.write_text("\n".join(files[DECODE]), encoding="utf-8")
    assert main(["lab", "trace", str(path)]) == 1
    said = capsys.readouterr().out
    assert f"{path}:4: {DECODE} step 4: release breaks no_clock_frees: attempt 1 is released as timeout" in said
    assert "--unsafe-release-on-timeout" in said


def test_a_bundle(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "bundle.tar.gz"
    with tarfile.open(target, "w:gz") as archive:
        for name, text in {"trace/decode-0.txt": "\n".join(story()[DECODE]), "errors.json": "{}"}.items():
            member = tarfile.TarInfo(f"quiesce-bundle/{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    assert main(["lab", "trace", str(target)]) == 0
    assert "said by a life without a file" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "no step at all\n", "1.0 1 decode@d0000000 <- Hold(attempt 1) -> nothing"])
def test_what_is_no_trace_is_refused(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text, encoding="utf-8")
    assert main(["lab", "trace", str(path)]) == 2
    assert "trace line" in capsys.readouterr().err


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert main(["lab", "trace", str(tmp_path / "none")]) == 2
