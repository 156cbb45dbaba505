"""An API key that was meant but never filled in must not open the server to everybody."""

from __future__ import annotations

from pathlib import Path

import pytest

from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import compose
from quiesce.cli.tree import EVERY_NAME, ROUTER, SERVE
from quiesce.errors import ConfigurationError
from quiesce.router.settings import RouterSettings

BLANK = "--api-key is empty; leave it out to serve without a key"


def problems(flags: dict[str, object], environ: dict[str, str], file: Path | None) -> list[str]:
    """Of both commands that take keys; they are the same."""
    config = str(file) if file else None
    found = []
    for slices, struct in ((ROUTER, RouterSettings), (SERVE, ServeSettings)):
        with pytest.raises(ConfigurationError) as caught:
            compose(slices, flags, environ=environ, config=config, known=EVERY_NAME).build(struct)
        found.append(caught.value.problems)
    assert found[0] == found[1]
    assert caught.value.exit_code == 2
    return found[0]


@pytest.mark.parametrize("said", [("",), (" ",), ("good", "")])
def test_a_blank_flag(said: tuple[str, ...]) -> None:
    assert problems({"api_key": said}, {}, None) == [BLANK]


@pytest.mark.parametrize("said", ["", " ", ",", "good,", " , good"])
def test_a_blank_variable(said: str) -> None:
    assert problems({}, {"QUIESCE_API_KEY": said}, None) == [f"{BLANK} (QUIESCE_API_KEY)"]


@pytest.mark.parametrize("said", ['[""]', '["  "]', '["good", ""]'])
def test_a_blank_key_in_the_file(said: str, tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    file.write_text(f"api-key = {said}\n")
    assert problems({}, {}, file) == [f"{BLANK} ({file}: api-key)"]


def test_a_good_flag_does_not_hide_a_blank_variable() -> None:
    assert problems({"api_key": ("good",)}, {"QUIESCE_API_KEY": ""}, None)


def test_a_key_is_never_shown(tmp_path: Path) -> None:
    file = tmp_path / "q.toml"
    file.write_text('api-key = "hush"\n')
    (problem,) = problems({}, {}, file)
    assert problem.startswith(f"{file}: api-key = ...: must be")


def test_good_keys_and_none() -> None:
    assert compose(ROUTER, {"api_key": ()}, environ={}).build(RouterSettings).api_key == ()
    assert compose(ROUTER, {}, environ={"QUIESCE_API_KEY": "a, b"}).build(RouterSettings).api_key == ("a", "b")
