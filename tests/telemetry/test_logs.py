from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Iterator

import pytest

from quiesce.errors import ConfigurationError, InvariantBroken
from quiesce.telemetry.logs import LIBRARIES, JsonFormatter, KeyValueFormatter, configure, ids


@pytest.fixture
def log() -> Iterator[logging.Logger]:
    loggers = [logging.getLogger(name) for name in ("quiesce", *LIBRARIES)]
    before = [(logger, logger.handlers[:], logger.propagate, logger.level) for logger in loggers]
    yield logging.getLogger("quiesce.worker.driver")
    for logger, handlers, propagate, level in before:
        logger.propagate = propagate
        logger.handlers[:] = handlers
        logger.setLevel(level)


def test_a_line_has_keys_and_ids_and_goes_to_stderr(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "decode", "decode-0")
    log.info("hold armed for %d pages", 31, extra=ids(request="req-1", attempt=7, reason="client left", proof=None))
    log.debug("not shown")
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        r"ts=\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z level=info role=decode worker=decode-0 logger=worker.driver "
        r'msg="hold armed for 31 pages" request=req-1 attempt=7 reason="client left"\n',
        err,
    )


def test_configuring_again_replaces(log: logging.Logger, capsys: pytest.CaptureFixture[str]) -> None:
    configure("info", "decode", "decode-0")
    configure("debug", "decode", "decode-1")
    log.debug("once")
    assert capsys.readouterr().err.count("msg=once") == 1


def test_other_libraries_warnings_take_the_same_form(
    log: logging.Logger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    library = logging.getLogger(LIBRARIES[0])
    for name, value in (("handlers", []), ("propagate", True), ("level", logging.NOTSET)):
        monkeypatch.setattr(library, name, value)
    configure("info", "router", "router")
    logging.getLogger(f"{LIBRARIES[0]}.part").warning("odd request")
    logging.getLogger(f"{LIBRARIES[0]}.part").info("chatter")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith('level=warning role=router worker=router logger=asyncio.part msg="odd request"')


def test_an_unknown_level_is_a_configuration_error(log: logging.Logger) -> None:
    with pytest.raises(ConfigurationError, match="loud"):
        configure("loud", "decode", "decode-0")


def test_there_is_no_field_for_a_users_text() -> None:
    for name in ("prompt", "answer", "text", "messages", "content"):
        with pytest.raises(InvariantBroken, match="log_fields"):
            ids(**{name: "secret"})


def test_one_record_is_one_line_whatever_it_holds() -> None:
    formatter = KeyValueFormatter("decode", "decode-0")
    record = logging.LogRecord("quiesce.x", logging.INFO, "", 0, 'a\nb "c" level=error', (), None)
    record.ids = {"reason": "\x1b[31mred\n"}
    line = formatter.format(record)
    assert "\n" not in line
    assert "\x1b" not in line
    assert r'msg="a\nb \"c\" level=error"' in line


def test_a_traceback_stays_on_the_line_whole() -> None:
    formatter = KeyValueFormatter("decode", "decode-0")
    try:
        raise ValueError("x" * 1000)
    except ValueError:
        record = logging.LogRecord("quiesce.x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    line = formatter.format(record)
    assert "\n" not in line
    assert "x" * 1000 in line


def test_long_values_are_cut() -> None:
    record = logging.LogRecord("quiesce.x", logging.INFO, "", 0, "y" * 10_000, (), None)
    assert len(KeyValueFormatter("decode", "decode-0").format(record)) < 800


def test_milliseconds_do_not_round_up_to_a_second() -> None:
    record = logging.LogRecord("quiesce.x", logging.INFO, "", 0, "m", (), None)
    record.created = 1_000_000_000.9999
    assert KeyValueFormatter("decode", "d").format(record).startswith("ts=2001-09-09T01:46:40.999Z ")


def test_json_has_the_same_fields_and_numbers_stay_numbers(
    log: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info", "decode", "decode-0", "json")
    log.info("held\n%d", 31, extra=ids(request="req-1", attempt=7, seconds=0.5, reason=ValueError("x"), pages=10**30))
    log.info("odd", extra=ids(seconds=float("nan"), reason="y" * 10_000))
    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", first.pop("ts"))
    assert first == {
        "level": "info",
        "role": "decode",
        "worker": "decode-0",
        "logger": "worker.driver",
        "msg": "held\n31",
        "request": "req-1",
        "attempt": 7,
        "seconds": 0.5,
        "reason": "x",
        "pages": 10**30,
    }
    assert second["seconds"] == "nan"
    assert len(second["reason"]) < 600


@pytest.mark.parametrize("library", LIBRARIES)
def test_libraries_speak_the_same_form(log: logging.Logger, capsys: pytest.CaptureFixture[str], library: str) -> None:
    configure("debug", "router", "router", "json")
    logging.getLogger(f"{library}.error").warning("odd")
    logging.getLogger(f"{library}.error").info("chatter")
    [line] = capsys.readouterr().err.splitlines()
    assert json.loads(line)["logger"] == f"{library}.error"


def _failed(text: str) -> logging.LogRecord:
    try:
        raise ValueError(text) from KeyError(text)
    except ValueError:
        return logging.LogRecord("quiesce.x", logging.ERROR, "", 0, "failed", (), sys.exc_info())


@pytest.mark.parametrize("formatter", [KeyValueFormatter, JsonFormatter])
def test_exceptions_of_the_router_do_not_quote(formatter: type[KeyValueFormatter | JsonFormatter]) -> None:
    """Where it failed and what kind of failure it was, the causes included; not what a client had written."""
    line = formatter("router", "router").format(_failed("a user's secret"))
    assert "secret" not in line
    assert line.count("(what it says is withheld)") == 2
    assert "KeyError" in line
    assert "test_logs.py" in line
    assert "secret" in formatter("decode", "decode-0").format(_failed("a user's secret"))


def test_our_own_bugs_say_what_they_are() -> None:
    try:
        raise InvariantBroken("once: a page came back twice")
    except InvariantBroken:
        record = logging.LogRecord("quiesce.x", logging.ERROR, "", 0, "failed", (), sys.exc_info())
    assert "a page came back twice" in KeyValueFormatter("router", "router").format(record)
