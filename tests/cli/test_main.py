"""The command as people run it: light to import, help that teaches, one line per error, exit codes."""

from __future__ import annotations

import re
import subprocess
import sys
import types
from pathlib import Path

import click
import pytest

from quiesce import __version__
from quiesce.cli import main as module
from quiesce.cli.commands import Commands
from quiesce.cli.fields import settings_of
from quiesce.cli.foreign import explain
from quiesce.cli.main import COMMANDS, main
from quiesce.cli.options import SettingsCommand
from quiesce.cli.report import report, warn
from quiesce.cli.settings import Composed
from quiesce.cli.terminal import Terminal, tell
from quiesce.cli.tree import SERVE
from quiesce.errors import (
    ConfigurationError,
    InvariantBroken,
    MachineLacksError,
    PeerUnusable,
    QuiesceError,
    UsageError,
)
from quiesce.text.model_cache import exclusive, make_once


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUIESCE_LOG_LEVEL", raising=False)
    monkeypatch.delenv("QUIESCE_CONFIG", raising=False)


def test_the_light_part_imports_no_engine() -> None:
    """Every command but running a worker works without torch and numba."""
    modules = sorted({module for module, _ in COMMANDS.values()})
    program = (
        f"import sys, {', '.join(modules)}; print([m for m in ('torch', 'numba', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("words", "code"), [(["--version"], 0), (["nonsense"], 2)])
def test_the_package_is_the_command(words: list[str], code: int) -> None:
    done = subprocess.run([sys.executable, "-m", "quiesce", *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, "" if code else f"quiesce {__version__}\n")
    assert ("Usage: quiesce " in done.stderr) == bool(code)


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    listed = capsys.readouterr().out
    for name in COMMANDS:
        assert (f"  {name} " in listed) == (name != "spare"), "only supervisors start spares"


def test_help_of_serve_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    taught = capsys.readouterr().out
    for title in ("Model:", "HTTP:", "Workers:", "KV pools and batches:", "Hand-off and isolation:", "Examples:"):
        assert f"\n{title}\n" in taught
    assert "--mode pd|aggregated" in taught
    assert "[default: 8000]" in taught
    assert "QUIESCE_" in taught
    for filled_in in ("--name", "--listen ", "--peer ", "--worker ", "--parent-fd", "--role"):
        assert filled_in not in taught


FLAGS = """
    model host port prefill decode mode context-length prefill-pool-tokens decode-pool-tokens allow-small-pool page-size
    max-prefill-tokens transport transfer-batch-pages hold-deadline-s fence-policy unsafe-release-on-timeout
    handoff-timeout-s grace-s deterministic log-level threads max-running-requests memory-share payload-digest
    quarantine-budget config
"""


@pytest.mark.parametrize("flag", FLAGS.split())
def test_serve_takes_the_flags_users_expect(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["serve", "--help"])
    assert f"--{flag} " in capsys.readouterr().out


@pytest.mark.parametrize("command", ["router", "prefill", "decode", "aggregated", "inspect", "models", "version"])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert "Usage: quiesce" in capsys.readouterr().out


def test_all_problems_of_a_worker_are_told_with_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--page-size", "0", "--threads", "many"]) == 2
    told = capsys.readouterr().err.splitlines()
    assert told[:2] == [
        "quiesce: --page-size = 0: must be at least 1",
        "quiesce: --threads = many: must be a whole number",
    ]
    assert [line.split()[1] for line in told[2:]] == ["--name", "--listen"]


def test_bounds_of_optional_settings_hold(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "--name", "a", "--listen", "unix:/x", "--context-length", "1"]) == 2
    assert capsys.readouterr().err == "quiesce: --context-length = 1: must be at least 2\n"


@pytest.mark.parametrize("words", [["nonsense"], ["serve", "--nonsense"], ["inspect", "--every"]])
def test_usage_errors_end_with_2(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    assert "Error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--max-model-len 5", "Here it is --context-length."),
        ("--max-num-seqs=5", "Here it is --max-running-requests."),
        ("--gpu-memory-utilization 0.9", "Here it is --memory-share."),
        ("--mem-fraction-static 0.9", "Here it is --memory-share."),
        ("--model-path /x", "Here it is --model."),
        ("--block-size 16", "Here it is --page-size."),
        ("--max-num-batched-tokens 9", "Here it is --max-prefill-tokens."),
        ("--chunked-prefill-size 9", "Here it is --max-prefill-tokens."),
        ("--tensor-parallel-size 2", "on CPU a worker is one process"),
        ("--tp 2", "on CPU a worker is one process"),
        ("--disaggregation-mode prefill", "`quiesce prefill` and `quiesce decode`"),
        ("--kv-transfer-config {}", "`quiesce prefill` and `quiesce decode`"),
        ("--page-sise 16", "Did you mean --page-size?"),
        ("--disable-radix-cache", "Here it is --prefix-cache off."),
        ("--max-total-tokens 9", "Here it is --prefill-pool-tokens and --decode-pool-tokens."),
        ("--data-tls on", "`quiesce prefill`, `quiesce decode`. `quiesce serve` keeps everything on one host"),
        ("--pool-tokens 9", "It is for `quiesce prefill`, `quiesce decode`. Did you mean --decode-pool-tokens"),
    ],
)
def test_names_of_other_servers_are_translated(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", *words.split()]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert f"No such option: {words.replace('=', ' ').split()[0]}." in told
    assert said in told


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("router --transport tcp", "It is for `quiesce serve`, `quiesce prefill`, `quiesce decode`."),
        ("router --trasnport tcp", "Did you mean --transport? It is for `quiesce serve`, "),
        ("router --no-trust-network", "It is for `quiesce serve`, `quiesce prefill`, `quiesce decode`."),
        ("decode --max-bodi-bytes=9", "Did you mean --max-bodies-bytes? It is for `quiesce serve`, `quiesce router`."),
        ("prefill --api-key k", "It is for `quiesce serve`, `quiesce router`."),
        ("inspect --rotuer u", "Did you mean --router?"),
        ("inspect --transport tcp", "It is for `quiesce serve`, `quiesce prefill`, `quiesce decode`."),
        ("lab swarm --sead 3", "Did you mean --seed?"),
    ],
)
def test_an_option_of_another_command_is_said_to_be_its(
    words: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    told = " ".join(capsys.readouterr().err.split())
    name = next(word for word in words.replace("=", " ").split() if word.startswith("--"))
    assert f"Error: No such option: {name}. {said}" in told


def test_every_flag_of_the_page_about_sglang_is_told() -> None:
    """In the first column of its tables; those that are called the same here need no word."""
    page = (Path(__file__).parents[2] / "docs/migrating-from-sglang.md").read_text()
    theirs = {
        flag for row in page.splitlines() if row.startswith("|") for flag in re.findall(r"--[a-z][a-z-]+", first(row))
    }
    assert {"--policy", "--disaggregation-bootstrap-port"} < theirs
    known = {setting.flag for setting in settings_of(SERVE).values()}
    assert {flag for flag in theirs - known if explain(flag, known, "serve").endswith(f"{flag}.")} == set()


def first(row: str) -> str:
    return re.split(r"(?<!\\)\|", row)[1]


@pytest.mark.parametrize("words", ["--port 99999", "--mode foo", "--config /nosuch"])
def test_a_port_that_nobody_asked_for_is_not_blamed(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def taken(host: str, port: int, flags: str = "", taken: str = "") -> int:
        raise ConfigurationError([f"{port} is taken"])

    monkeypatch.setattr("quiesce.cli.serve.free_port", taken)
    assert main(["serve", *words.split()]) == 2
    said = capsys.readouterr().err
    assert words.split()[0] in said
    assert "taken" not in said
    assert main(["serve", *words.split(), "--port", "8000"]) == 2
    assert "8000 is taken" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["inspect", "restart"])
def test_a_directory_without_a_server_is_a_usage_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--run-dir", str(tmp_path)]) == 2
    assert "has no worker sockets" in capsys.readouterr().err


def test_a_closed_output_is_no_bug_of_ours(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(SystemExit(1), ["inspect", "--json"]) == 1
    assert capsys.readouterr().err == ""


def test_an_option_that_resembles_nothing_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["router", "--block-size", "16"]) == 2
    assert capsys.readouterr().err.endswith("Error: No such option: --block-size.\n")


def test_the_version_is_an_option_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"quiesce {__version__}\n"


def test_the_model_may_stand_without_its_flag(capsys: pytest.CaptureFixture[str]) -> None:
    told = []

    def action(composed: Composed, parent_fd: int | None) -> int:
        told.append(composed.get("model"))
        return 0

    serve = SettingsCommand("serve", SERVE, action, (), about="", short="", positional="model")
    for words in (["a"], ["--model", "a"], ["a", "--model", "a"]):
        assert serve.main(words, standalone_mode=False) == 0
    assert told == ["a", "a", "a"]
    with pytest.raises(click.UsageError, match="Both a and --model b"):
        serve.main(["a", "--model", "b"], standalone_mode=False)
    assert main(["serve", "--help"]) == 0
    assert "[MODEL]" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["router", "prefill"])
def test_what_the_light_installation_lacks_is_named(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    room = "router" if command == "router" else "worker"
    lacking = types.ModuleType(f"quiesce.{room}.main")

    def run(settings: object) -> int:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")

    lacking.run = run  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, lacking.__name__, lacking)
    words = [] if command == "router" else ["--name", "a", "--listen", "unix:/x"]
    assert main([command, *words]) == 3
    assert (
        "no torch, which is needed here. Run, in the source's directory: pip install -e '.[serve]'"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(("words", "warned"), [(["--host=0.0.0.0"], 1), (["--host=0.0.0.0", "--api-key=k"], 0)])
def test_a_router_alone_warns_of_an_open_door_too(
    words: list[str], warned: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    idle = types.ModuleType("quiesce.router.main")
    idle.run = lambda settings: 0  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, idle.__name__, idle)
    assert main(["router", *words]) == 0
    assert capsys.readouterr().err.count("quiesce: warning: --host 0.0.0.0 can be reached") == warned


def test_inspect_without_a_server_says_what_to_do(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("r")))
    assert main(["inspect", "--once"]) == 2
    assert "quiesce serve" in capsys.readouterr().err


def test_version_names_what_it_stands_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version"]) == 0
    rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert {"quiesce", "protocol", "python", "torch", "msgspec"} <= set(rows)


def test_models_lists_what_is_known(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = tmp_path_factory.mktemp("c")
    monkeypatch.setenv("QUIESCE_CACHE", str(cache))
    made = cache / "models" / "some-model"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}")
    assert main(["models"]) == 0
    listed = capsys.readouterr().out
    assert "smollm2\n" in listed
    assert "tiny\n" in listed
    assert f"{made}\n    converted earlier; 2 B" in listed


def test_prune_removes_what_was_made_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("QUIESCE_CACHE", str(tmp_path))
    made = make_once(tmp_path / "models" / "made", lambda path: path.mkdir())
    (made / "model.safetensors").write_bytes(bytes(2048))
    (tmp_path / "models" / ".made.killed").mkdir()
    (tmp_path / "models" / "of-somebody").mkdir()
    with exclusive(tmp_path / "kernels" / "head64"):
        (tmp_path / "kernels" / "head64").mkdir()
    assert main(["models", "--prune"]) == 0
    assert capsys.readouterr().out == f"removed 2.0 KiB from {tmp_path}\n"
    assert [path.name for path in tmp_path.glob("*/*") if path.is_dir()] == ["of-somebody"]
    assert main(["models", "--prune"]) == 0


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (QuiesceError("found something"), 1, "quiesce: found something"),
        (UsageError("cannot.", remedy="Do this."), 2, "quiesce: cannot. Do this."),
        (ConfigurationError(["one", "two"]), 2, "quiesce: one\nquiesce: two"),
        (MachineLacksError("no memfd"), 3, "quiesce: no memfd"),
        (PeerUnusable("gone"), 4, "quiesce: gone"),
        (InvariantBroken("once"), 70, "quiesce: once"),
        (click.UsageError("what?"), 2, "Error: what?"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_each_error_has_its_exit_code_and_line(
    error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert report(error, []) == code
    assert capsys.readouterr().err.strip() == line


HOSTILE = "\x1b[31mx\x07\u202e\x9b"
WRITTEN_OUT = r"\x1b[31mx\x07\u202e\x9b"


@pytest.mark.parametrize(
    "words",
    [
        "serve --X",
        "serve --X=5",
        "lab --X",
        "X",
        "lab X",
        "serve --mode X",
        "serve --port X",
        "prefill --listen X",
        "prefill --name a --listen tcp://h:1 --tls-cert /X --tls-key /X --tls-ca /X",
        "serve --config /X",
        "doctor X",
        "doctor --kind X",
        "doctor --explain X",
        "models X",
        "inspect --run-dir /X",
        "inspect --every X",
        "keys check /X",
        "serve --X --log-level debug",
        "serve --mode X --log-level debug",
    ],
)
def test_no_error_moves_the_cursor(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever's words it quotes: what a terminal would obey is written out."""
    assert main([word.replace("X", HOSTILE) for word in words.split()]) == 2
    said = capsys.readouterr().err
    assert WRITTEN_OUT in said
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize("error", [LookupError(HOSTILE), PeerUnusable(HOSTILE), click.ClickException(HOSTILE)])
@pytest.mark.parametrize("level", ["info", "debug"])
def test_errors_of_any_kind_are_written_out(error: Exception, level: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert report(error, ["--log-level", level]) != 0
    said = capsys.readouterr().err
    assert WRITTEN_OUT in said
    assert said.replace("\n", "").isprintable()


@pytest.mark.parametrize("command", ["router", "serve --model tiny"])
@pytest.mark.parametrize("host", [HOSTILE, "a..b", "x" * 64])
def test_what_cannot_be_a_host_is_no_bug_of_ours(command: str, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command.split(), "--host", host]) == 2
    assert "that is no host's name" in capsys.readouterr().err


def test_what_servers_say_and_warn_of_is_written_out_too(capsys: pytest.CaptureFixture[str]) -> None:
    tell(Terminal(), f"quiesce: {HOSTILE}")
    warn(HOSTILE)
    assert capsys.readouterr().err == f"quiesce: {WRITTEN_OUT}\nquiesce: warning: {WRITTEN_OUT}\n"


def test_an_unexpected_error_is_our_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    @click.command()
    def broken() -> None:
        raise LookupError("surprise")

    monkeypatch.setattr(module.quiesce, "commands", {})
    monkeypatch.setattr(Commands, "get_command", lambda *_: broken)
    assert main(["anything"]) == 70
    told = capsys.readouterr().err
    assert "internal error: LookupError: surprise" in told
    assert "--log-level debug" in told
    assert "Traceback" not in told


@pytest.mark.parametrize("words", [["x", "--log-level", "debug"], ["x", "--log-level=debug"]])
def test_a_traceback_comes_when_asked_for(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert report(LookupError("surprise"), words) == 70
    assert "LookupError: surprise" in capsys.readouterr().err.splitlines()[0]
