"""Weights that cannot be used are named, with what to do, before anything is loaded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from quiesce.engine.config import TINY
from quiesce.engine.shapes import tensor_shapes, weights_bytes
from quiesce.engine.weight_files import INDEX, tensor_files
from quiesce.errors import ConfigurationError


def save(path: Path) -> Path:
    save_file({"x": np.ones((4, 4), np.float32)}, path)
    return path


def problems(directory: Path) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        tensor_files(directory)
    return caught.value.problems


def test_one_file_or_an_index(tmp_path: Path) -> None:
    save(tmp_path / "a.safetensors")
    assert tensor_files(tmp_path) == {"": "a.safetensors"}
    save(tmp_path / "b.safetensors")
    assert "2 .safetensors files and no model.safetensors.index.json" in problems(tmp_path)[0]
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    assert tensor_files(tmp_path) == {"x": "a.safetensors", "y": "b.safetensors"}


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.00.pth"])
def test_pickled_weights_are_refused_with_the_conversion(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    [problem] = problems(tmp_path)
    assert name in problem
    assert "safe_serialization=True" in problem


def test_no_weights_at_all(tmp_path: Path) -> None:
    assert problems(tmp_path) == [f"{tmp_path} has no .safetensors files and no {INDEX}"]


@pytest.mark.parametrize("left", [0, 4, 20, -1])
def test_a_file_that_is_cut_short_should_be_downloaded_again(tmp_path: Path, left: int) -> None:
    file = save(tmp_path / "a.safetensors")
    file.write_bytes(file.read_bytes()[:left])
    [problem] = problems(tmp_path)
    assert problem.startswith(str(file))
    assert problem.endswith("download it again")


def test_what_is_missing_is_named_with_everything_else(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").write_bytes(b"<!DOCTYPE html>" * 9)
    (tmp_path / INDEX).write_text(json.dumps({"weight_map": {"x": "a.safetensors", "y": "b.safetensors"}}))
    first, second = problems(tmp_path)
    assert "a.safetensors" in first
    assert f"{tmp_path}/b.safetensors is missing: download it again" == second


@pytest.mark.parametrize("index", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {"x": "../y"}}'])
def test_an_index_that_cannot_be_used(tmp_path: Path, index: str) -> None:
    (tmp_path / INDEX).write_text(index)
    assert INDEX in problems(tmp_path)[0]


def test_sizes_are_known_without_the_weights() -> None:
    assert weights_bytes(TINY) == 4 * sum(int(np.prod(shape)) for shape in tensor_shapes(TINY).values())


def test_none_of_this_needs_torch() -> None:
    program = "import sys, quiesce.engine.weight_files, quiesce.engine.shapes; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
