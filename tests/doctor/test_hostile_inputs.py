"""Inputs that want to hurt whoever reads them: they are refused or bounded, and nothing of them is obeyed."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quiesce.doctor import documents, endpoint
from quiesce.doctor.answers import read_metrics
from quiesce.doctor.documents import Document, Kind
from quiesce.doctor.examination import Inputs, examine
from quiesce.doctor.fleet import Field
from quiesce.doctor.logs import read_log
from quiesce.doctor.manifests import read_manifest
from quiesce.doctor.report import as_text
from quiesce.doctor.scripts import read_arguments, read_command, read_environment, read_unit
from quiesce.doctor.shell import MOST_WORD_CHARACTERS
from quiesce.errors import QuiesceError, UsageError

from .fake_server import ok, serving


def manifest(text: str) -> object:
    return read_manifest(Document("x.yaml", text))


LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: v}\n" + "".join(
    f"{name}: &{name} {{<<: [{', '.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize("text", [LAUGHS, MERGES], ids=["aliases", "merges"])
def test_a_billion_laughs_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="nodes, aliases followed"):
        manifest(f"services: {{}}\n{text}")


@pytest.mark.parametrize("text", ["services: " + "[" * 5000, "services: " + "{a: " * 200])
def test_what_is_nested_without_end_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"nested too deeply|no YAML"):
        manifest(text)


@pytest.mark.parametrize("tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!!binary", "!x"])
def test_tags_make_no_objects(tag: str) -> None:
    assert manifest(f"services:\n  a: {tag} ['id']\n  b: {tag} id\n") == []


@pytest.mark.parametrize(
    "text",
    ["services: [", "services:\n\t- x", "a: b: c", "services: *nobody", "services: &a\n  x: *a\n", "\x07services:"],
)
def test_broken_yaml_is_told_with_its_place(text: str) -> None:
    with pytest.raises(UsageError, match=r"x\.yaml(:\d+)?: this is no YAML"):
        manifest(text)


def test_variables_that_grow_are_refused() -> None:
    doubling = "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A\n" * 40
    with pytest.raises(UsageError, match=f"more than {MOST_WORD_CHARACTERS} characters"):
        read_command(Document("x.sh", doubling))


@pytest.mark.parametrize("text", ["sglang serve 'm", 'sglang serve "m', "sglang serve `m", "sglang serve ${m"])
def test_a_quote_that_never_closes_is_told(text: str) -> None:
    with pytest.raises(UsageError, match="never closed"):
        read_command(Document("x.sh", text))


def test_nothing_of_a_script_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "touch made; $(touch made) `touch made`\nsglang serve m --disaggregation-mode decode --port $(touch made)\n"
    (member,) = read_command(Document("x.sh", text))
    assert member.role == "decode"
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_obeys_nothing_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text(
        "server_args=ServerArgs(disaggregation_mode='decode', context_length=9, host='\x1b[2J\x1b]0;owned\x07')\n"
        "max_total_num_tokens=5, context_len=9, version='0.5.18\x1b[31m'\n"
    )
    told = as_text(examine(Inputs(names=[str(log)])))
    assert "context-exceeds-pool" in told
    assert "\x1b" not in told
    assert "\x07" not in told


def test_a_log_of_a_crash_loop_counts_the_last_life() -> None:
    line = "server_args=ServerArgs(disaggregation_mode='decode', port=3, context_length={})\n"
    (member,) = read_log(Document("x.log", "".join(line.format(life) for life in range(1, 2001))))
    assert member.number(Field.CONTEXT_TOKENS) == 2000


def test_processes_without_end_are_refused(tmp_path: Path) -> None:
    script = tmp_path / "x.sh"
    script.write_text("sglang serve m --disaggregation-mode decode\n" * 201)
    with pytest.raises(UsageError, match="start 201 processes; 200 are examined at most"):
        examine(Inputs(names=[str(script)]))


@pytest.mark.parametrize("line", ["server_args=ServerArgs(" + "a='" * 200_000, "max_total_num_tokens=" + "9" * 500_000])
def test_long_lines_are_bounded(line: str) -> None:
    assert len(read_log(Document("x.log", line))) <= 1


def test_only_the_beginning_of_a_long_log_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "MOST_LOG_BYTES", 4096)
    log = tmp_path / "x.log"
    log.write_text("server_args=ServerArgs(disaggregation_mode='null')\n" + "x" * 10_000)
    assert examine(Inputs(names=[str(log)])).notes == (f"{log}: only its beginning was read; it is too long.",)


def test_a_long_manifest_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.yaml"
    file.write_text("services:\n" + "# more\n" * 200_000)
    with pytest.raises(UsageError, match=r"a manifest of more than 1\.0 MiB"):
        examine(Inputs(names=[str(file)]))


@pytest.mark.parametrize("name", ["/dev/zero", "/dev/stdin", ".", "/no/such/file", "x\0y"])
def test_only_regular_files_are_read(name: str) -> None:
    with pytest.raises(UsageError):
        examine(Inputs(names=[name]))


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="no regular file"):
        examine(Inputs(names=[str(tmp_path / "pipe")]))


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "ftp://h/", "http://", "http://u:p@h/", "http://h:99999/", "gopher://h", "http://[::1"],
)
def test_addresses_that_are_none_are_refused(url: str) -> None:
    with pytest.raises(UsageError):
        examine(Inputs(names=[url]))


def test_an_address_keeps_nothing_but_its_host() -> None:
    assert endpoint.checked("https://h:8443/a/b?c=d#e") == "https://h:8443"
    assert endpoint.checked("http://[::1]:80/") == "http://[::1]:80"


@pytest.mark.parametrize(
    "content",
    ["[" * 100_000, '{"loads": ' * 5000, "{}", "[]", "3", "null", '{"disaggregation_mode": [{}]}', '{"loads": [3]}'],
)
def test_json_that_is_none_or_nothing_known_is_told(tmp_path: Path, content: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with suppress(UsageError):
        examine(Inputs(names=[str(file)], kind=Kind.JSON))


@pytest.mark.parametrize("value", ["Inf", "-Inf", "NaN", "1e308", "-5"])
def test_values_of_metrics_that_count_nothing_are_left_out(tmp_path: Path, value: str) -> None:
    names = ("max_total_num_tokens", "decode_deferred_kv_release_seconds_sum", "num_decode_deferred_kv_release_reqs")
    lines = [f'sglang:{name}{{engine_type="{role}"}} {value}' for name in names for role in ("prefill", "decode")]
    lines += [f'quiesce_pages{{role="decode",worker="decode-0",state="held"}} {value}']
    file = tmp_path / "metrics.txt"
    file.write_text("\n".join([*lines, 'sglang:num_running_reqs{engine_type="decode"} 3', ""]))
    for tell in ((), ("context-tokens=4096",)):
        diagnosis = examine(Inputs(names=[str(file)], kind=Kind.METRICS, tell=tell))
        assert not any(told in as_text(diagnosis) for told in ("inf", "nan", "e+308"))


@pytest.mark.parametrize("digits", [25, 401, 5000])
def test_numbers_of_a_server_have_an_end(digits: int) -> None:
    cache = 'vllm:cache_config_info{block_size="16",num_gpu_blocks="42580"} 1.0\n'
    models = f'{{"data": [{{"id": "m", "max_model_len": 1{"0" * digits}}}]}}'
    info = f'{{"disaggregation_mode": "decode", "watchdog_timeout": 1{"0" * digits}}}'
    with serving({"/metrics": ok(f"# TYPE vllm:cache_config_info gauge\n{cache}"), "/v1/models": ok(models)}) as server:
        (member,) = endpoint.examine(server.url, None)[0]
        assert member.number(Field.CONTEXT_TOKENS) is None
        examine(Inputs(names=[server.url]))
    with serving({"/server_info": ok(info)}) as server, suppress(QuiesceError):
        examine(Inputs(names=[server.url]))


@pytest.mark.parametrize(
    "line",
    [
        "quiesce_pages{" + ",".join(f'a{i}="b"' for i in range(300)) + "} 1",
        "quiesce_pages{" + "," * 1000 + "} 1",
        'quiesce_pages{a="' + '",="' * 500 + '"} 1',
        'quiesce_pages{a="' + "x" * 8000 + '"} 1',
        'quiesce_pages{a="' + "\\\\" * 1000 + '"} 1',
    ],
)
def test_lines_of_metrics_that_would_take_long_are_refused(line: str) -> None:
    with pytest.raises(UsageError, match="a line of more than 4096 characters, or 128 labels"):
        read_metrics(Document("m", line + "\n"))


TEXTS = st.text(
    st.sampled_from("abAB_=$(){}[]'\"`\\<>|&;#-: \n\t*&!0123,{}.") | st.characters(codec="utf-8"), max_size=300
)


@settings(max_examples=150, deadline=None)
@given(TEXTS)
def test_noise_is_read_or_refused_and_never_an_internal_error(text: str) -> None:
    document = Document("noise", f"sglang serve {text}")
    for reader in (read_command, read_arguments, read_unit, read_log, read_manifest):
        with suppress(QuiesceError):
            reader(document)
    with suppress(QuiesceError):
        read_environment(text)
