"""Flag beats variable beats file beats default, and every problem is told at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import pytest
from msgspec import Meta

from quiesce.cli.fields import Slice
from quiesce.cli.settings import compose, write_file
from quiesce.cli.tree import SERVE, WORKER
from quiesce.errors import ConfigurationError


class Room(msgspec.Struct, frozen=True, kw_only=True):
    listen: Annotated[str, Meta(description="Where to listen.")]
    page_size: Annotated[int, Meta(ge=1, description="Tokens.")] = 16
    grace_s: Annotated[float, Meta(ge=0, description="Grace.")] = 30.0
    quick: bool = False
    peer: tuple[str, ...] = ()


SLICES = [Slice(Room)]


def built(
    flags: dict[str, object], environ: dict[str, str] | None = None, file: Path | None = None, **fixed: object
) -> Room:
    composed = compose(SLICES, flags, environ=environ or {}, config=str(file) if file else None)
    return composed.build(Room, **{"listen": "unix:/x", **fixed})


def problems_of(flags: dict[str, object], environ: dict[str, str], config: str | None = None) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        compose(SLICES, flags, environ=environ, config=config).build(Room)
    return caught.value.problems


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "quiesce.toml"
    path.write_text('page-size = 4\ngrace_s = "2m"\npeer = ["a", "b"]\n')
    return path


def test_defaults_hold_when_nothing_is_said() -> None:
    assert built({"page_size": None, "peer": ()}) == Room(listen="unix:/x")


def test_each_source_beats_the_weaker_ones(file: Path) -> None:
    environ = {"QUIESCE_PAGE_SIZE": "8"}
    assert built({}, file=file).page_size == 4
    assert built({}, environ, file).page_size == 8
    assert built({"page_size": "32"}, environ, file).page_size == 32


def test_a_flag_can_switch_off_what_a_variable_switched_on() -> None:
    assert built({}, {"QUIESCE_QUICK": "1"}).quick
    assert not built({"quick": False}, {"QUIESCE_QUICK": "1"}).quick


def test_keys_may_have_dashes_or_underscores_and_units(file: Path) -> None:
    room = built({}, file=file)
    assert (room.grace_s, room.peer) == (120.0, ("a", "b"))


def test_the_file_may_be_named_by_a_variable(file: Path) -> None:
    assert built({}, {"QUIESCE_CONFIG": str(file)}).page_size == 4


def test_all_problems_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("page-sise = 4\nquick = 3\n")
    problems = problems_of({"page_size": "0", "grace_s": "soon"}, {"QUIESCE_PEAR": "a"}, str(path))
    text = "\n".join(problems)
    assert "--page-size = 0: must be at least 1" in text
    assert "--grace-s = soon:" in text
    assert f"{path}: page-sise: no such setting; did you mean page-size?" in text
    assert f"{path}: quick = 3: must be true or false" in text
    assert "--listen is needed: Where to listen." in text
    assert "QUIESCE_PEAR: no such setting; did you mean QUIESCE_PEER?" in text
    assert len(problems) == 6


def test_an_unreadable_required_setting_is_one_problem_not_two() -> None:
    class Numbered(msgspec.Struct, frozen=True):
        rank: int

    with pytest.raises(ConfigurationError) as caught:
        compose([Slice(Numbered)], {"rank": "x"}, environ={}).build(Numbered)
    assert caught.value.problems == ["--rank = x: must be a whole number"]


def test_what_has_a_shape_is_told_it() -> None:
    flags = {"listen": "foo:x", "otlp_endpoint": "foo"}
    told = compose(WORKER, flags, environ={})
    assert told.problems == [
        "--listen = foo:x: must be unix:/absolute/path.sock or tcp://HOST:PORT",
        "--otlp-endpoint = foo: must be an http:// or https:// URL",
    ]
    for wrong in ("localhost:4318", "http://localhost:4318\n", "http://localhost:4318/v1/traces\n"):
        assert compose(SERVE, {"otlp_endpoint": wrong}, environ={}).problems
    assert not compose(SERVE, {"otlp_endpoint": "https://[::1]:4318/v1/traces"}, environ={}).problems


def test_a_blank_secret_is_one_problem() -> None:
    told = compose(SERVE, {"front_key": "", "fronts": "0"}, environ={})
    assert told.problems == ["--front-key is empty; give a key, or --front-open on a loopback address"]


def test_misspelt_variables_are_found_and_strange_ones_let_be() -> None:
    problems = problems_of({"listen": "unix:/x"}, {"QUIESCE_PAGE_SIZ": "4", "QUIESCE_SERVICE_HOST": "10.0.0.1"})
    assert problems == ["QUIESCE_PAGE_SIZ: no such setting; did you mean QUIESCE_PAGE_SIZE?"]


def test_a_service_link_of_kubernetes_is_recognised() -> None:
    assert "enableServiceLinks" in problems_of({"listen": "x"}, {"QUIESCE_PAGE_SIZE": "tcp://10.0.0.1:8000"})[0]


def test_settings_of_other_commands_may_be_in_a_shared_file(tmp_path: Path) -> None:
    path = tmp_path / "shared.toml"
    path.write_text("port = 9000\n")
    composed = compose(SLICES, {"listen": "x"}, environ={}, config=str(path), known={"port"})
    assert composed.build(Room) == Room(listen="x")


@pytest.mark.parametrize("content", [None, b"page-size = = 4", b"\xff\xfe"])
def test_a_missing_or_broken_file_is_a_problem(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "broken.toml"
    if content is not None:
        path.write_bytes(content)
    assert problems_of({"listen": "x"}, {}, str(path))[0].startswith(f"--config {path}: ")


def test_a_table_in_the_file_is_told_what_the_file_is_like(tmp_path: Path) -> None:
    path = tmp_path / "tables.toml"
    path.write_text("[serve]\nport = 9000\n[page-size]\nx = 1\n")
    assert problems_of({"listen": "x"}, {}, str(path)) == [
        f"{path}: [serve]: this file has no tables: write the keys at the top level",
        f"{path}: [page-size]: this file has no tables: write the keys at the top level",
    ]


def test_an_unreadable_required_setting_of_the_file_is_one_problem_too(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text("listen = 3\n")
    assert problems_of({}, {}, str(path)) == [f"{path}: listen = 3: must be text"]


def test_checks_across_fields_are_problems_too() -> None:
    class Paired(msgspec.Struct, frozen=True):
        low: int = 0
        high: int = 1

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError("--low is above --high")

    with pytest.raises(ConfigurationError, match="--low is above --high"):
        compose([Slice(Paired)], {"low": "2"}, environ={}).build(Paired)


def test_fixed_values_beat_what_was_said() -> None:
    assert built({"page_size": "4"}, page_size=2).page_size == 2


def test_get_falls_back_to_the_default() -> None:
    composed = compose(SLICES, {"page_size": "4"}, environ={})
    assert (composed.get("page_size"), composed.get("grace_s")) == (4, 30.0)


def test_a_written_file_reads_back(tmp_path: Path) -> None:
    said = {"listen": 'unix:/tmp/ä "\U0001f600"\\x', "page_size": 8, "grace_s": 1.5, "quick": True, "peer": ("a", "b")}
    write_file(tmp_path / "w.toml", {**said, "nothing": None})
    room = compose(SLICES, {}, environ={}, config=str(tmp_path / "w.toml")).build(Room)
    assert msgspec.structs.asdict(room) == said
