"""Kubernetes and compose files of any shape are read without a fault, and what they start is found wherever it is."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.doctor.documents import Document
from quiesce.doctor.examination import diagnosis
from quiesce.doctor.fleet import Field, Fleet, Member
from quiesce.doctor.manifests import read_manifest
from quiesce.errors import UsageError

WORDS = st.sampled_from(
    [
        *(
            "sglang serve m --disaggregation-mode decode --port $(x)",
            "sglang",
            "serve",
            "-c",
            "Service",
            "NodePort",
            "",
        ),
        *("vllm/vllm-openai:v0.20.0", "lmsysorg/sglang:v0.5.20", "x=1", "true", "--host", "host", "8998"),
    ]
)
LEAVES = WORDS | st.none() | st.integers(0, 9)
LOOSE = LEAVES | st.lists(LEAVES, max_size=3) | st.dictionaries(WORDS, LEAVES, max_size=3)
COMMANDS = st.just(["sglang", "serve", "m", "--disaggregation-mode", "decode"]) | LOOSE


def objects(*names: str, **known: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Maps with some of these names, whose values are of any shape, or of the known one."""
    return st.fixed_dictionaries({}, optional={name: known.get(name, LOOSE) | LOOSE for name in (*names, *known)})


PORTS = st.lists(objects("port", "targetPort", "published", "hostPort") | LOOSE, max_size=2)
VARIABLES = st.lists(objects("name", "value", "valueFrom") | LOOSE, max_size=2) | LOOSE
STARTS = {
    "command": COMMANDS,
    "args": LOOSE,
    "entrypoint": COMMANDS,
    "ports": PORTS,
    "env": VARIABLES,
    "environment": LOOSE,
}
CONTAINERS = objects("image", "name", "envFrom", "env_file", "network_mode", **STARTS)
PODS = objects("hostNetwork", "mainContainer", containers=st.lists(CONTAINERS, max_size=2))
TEMPLATES = objects(spec=PODS, metadata=objects("labels"))
TREES = objects(
    "kind",
    services=st.dictionaries(WORDS, CONTAINERS | LOOSE, max_size=2),
    spec=objects("type", "selector", template=TEMPLATES, ports=PORTS),
    items=st.lists(TEMPLATES),
)


@settings(max_examples=300, deadline=None)
@given(TREES)
def test_any_tree_is_read_or_refused(tree: dict[str, Any]) -> None:
    with suppress(UsageError):
        diagnosis(Fleet(tuple(read_manifest(Document("x.yaml", yaml.safe_dump(tree))))))


@pytest.mark.parametrize(
    "text",
    [
        "services: {a: {command: sglang serve m, ports: [{published: {a: b}}, [x], {}], network_mode: [host]}}",
        "spec: {containers: [{command: [sglang, serve, m], env: [{name: MC_TRANSFER_TIMEOUT, value: {a: b}}, x]}]}",
        "spec: {containers: [{command: [sglang, serve, m, {a: b}], env: [{name: [x], value: y}], name: {a: b}}]}",
        "spec: {hostNetwork: [true], containers: [{image: [x], command: [sglang, serve, m], ports: [{hostPort: {}}]}]}",
    ],
)
def test_parts_of_another_shape_are_left_out(text: str) -> None:
    assert diagnosis(Fleet((only(f"apiVersion: v1\n{text}"),)))


def only(text: str) -> Member:
    (member,) = read_manifest(Document("x.yaml", text))
    return member


def value(member: Member, field: Field) -> object:
    told = member.told(field)
    return told and (told.value, told.evidence.line)


def test_merges_keep_what_is_said_here() -> None:
    member = only(
        "x-base: &base\n  image: lmsysorg/sglang:v0.5.20\n  environment: {MC_TRANSFER_TIMEOUT: '9'}\n"
        "services:\n  decode:\n    <<: *base\n    image: lmsysorg/sglang:v0.5.23\n"
        "    command: sglang serve m --disaggregation-mode decode\n"
    )
    assert value(member, Field.VERSION) == ("v0.5.23", 7)
    assert value(member, Field.TRANSFER_S) == (9.0, 3)


@pytest.mark.parametrize(("style", "line"), [("|", 8), (">", 7)])
def test_lines_of_a_script_inside(style: str, line: int) -> None:
    """Where YAML folds lines, the first one is all that is known."""
    mark = " \\" if style == "|" else ""
    script = f"      sglang serve m{mark}\n      --disaggregation-mode decode --context-length 7\n"
    text = f"apiVersion: v1\nspec:\n  containers:\n  - command: [sh, -c]\n    args:\n    - {style}\n{script}"
    assert value(only(text), Field.CONTEXT_TOKENS) == (7, line)


def test_variables_of_the_container_are_those_of_its_script() -> None:
    text = (
        "apiVersion: v1\nspec:\n  containers:\n  - command: [sh, -c, 'sglang serve m --context-length $SIZE']\n"
        "    env: [{name: SIZE, value: '32768'}]\n"
    )
    assert value(only(text), Field.CONTEXT_TOKENS) == (32768, 4)
