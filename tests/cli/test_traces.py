"""`--otlp-endpoint` without OpenTelemetry: refused with exit code 2, before anything is loaded or started."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from quiesce.cli import serve
from quiesce.cli.main import main
from quiesce.text.model import TextModel
from quiesce.worker import main as worker

ENDPOINT = ["--otlp-endpoint", "http://127.0.0.1:4318/v1/traces"]


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was loaded or started, which is nothing."""
    began: list[str] = []

    def note(what: str) -> Any:
        def begin(*_: object, **__: object) -> None:
            began.append(what)
            raise RuntimeError(what)

        return begin

    monkeypatch.setattr(TextModel, "load", note("a tokenizer"))
    monkeypatch.setattr(worker, "load", note("a model"))
    monkeypatch.setattr(serve, "survey", note("a survey"))
    return began


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.exporter.otlp.proto.http.trace_exporter"])
@pytest.mark.parametrize(
    "words",
    [
        ["serve", "--port", "0", "--model", "tiny"],
        ["router", "--worker", "unix:{}/w.sock"],
        ["decode", "--name", "decode-0", "--model", "tiny", "--listen", "unix:{}/d.sock"],
    ],
    ids=lambda words: words[0],
)
def test_what_is_missing_is_named_before_anything_is_loaded(
    words: list[str],
    missing: str,
    loaded: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    for name in [name for name in sys.modules if name.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    assert main([word.format(tmp_path) for word in words] + ENDPOINT) == 2
    assert "in the source's directory: pip install -e '.[otel]'" in capsys.readouterr().err
    assert not loaded
