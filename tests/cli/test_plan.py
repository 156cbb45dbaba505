"""From settings to processes: who is started, with which words, told what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from quiesce.cli.plan import Planned, Pools, plan, product_entry, split_grace, stages
from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import compose, write_file
from quiesce.cli.tree import EVERY_NAME, ROUTER, SERVE, WORKER
from quiesce.router.settings import RouterSettings
from quiesce.worker.settings import WorkerSettings

RUN = Path("/run/q")


def planned(flags: dict[str, object]) -> dict[str, Planned]:
    composed = compose(SERVE, flags, environ={})
    return {process.spec.name: process for process in plan(composed.build(ServeSettings), composed, RUN)}


def test_pd_with_several_workers() -> None:
    processes = planned({"prefill": "2", "decode": "2"})
    assert list(processes) == ["prefill-0", "prefill-1", "decode-0", "decode-1", "router"]
    peers = ["prefill-0=unix:/run/q/prefill-0.sock", "prefill-1=unix:/run/q/prefill-1.sock"]
    assert processes["decode-1"].settings["peer"] == peers
    assert "peer" not in processes["prefill-1"].settings
    assert processes["router"].settings["worker"] == [
        f"unix:/run/q/{name}.sock" for name in list(processes) if name != "router"
    ]


def test_aggregated_is_one_worker_without_peers() -> None:
    processes = planned({"mode": "aggregated", "decode_pool_tokens": "512"})
    assert list(processes) == ["aggregated-0", "router"]
    assert processes["aggregated-0"].settings["pool_tokens"] == 512
    assert processes["aggregated-0"].spec.role == "aggregated"
    assert "peer" not in processes["aggregated-0"].settings


def test_spares_are_told_what_workers_load_and_stand_in_for_roles() -> None:
    composed = compose(SERVE, {"model": "tiny", "threads": "2"}, environ={})
    planned = {each.spec.name: each for each in plan(composed.build(ServeSettings), composed, RUN, spare="libraries")}
    assert list(planned)[-2:] == ["spare", "spare-router"]
    spare, other = planned["spare"], planned["spare-router"]
    assert {"holds": "libraries", "model": "tiny", "threads": 2}.items() <= spare.settings.items()
    assert other.settings["holds"] == "router"
    for each in planned.values():
        if not each.stands_in_for:
            fitting = [spare.spec.name for spare in (spare, other) if each.spec.role in spare.stands_in_for]
            assert fitting == ["spare-router" if each.spec.role == "router" else "spare"]
            assert each.spec.argv[-len(each.spec.words) :] == each.spec.words


def test_only_what_was_said_is_passed_on() -> None:
    processes = planned({"page_size": "8", "retries": "0", "model": "tiny"})
    assert set(processes["prefill-0"].settings) == {"page_size", "model", "grace_s", "listen", "log_level"}
    assert set(processes["router"].settings) == {
        *("retries", "model", "host", "port"),
        *("grace_s", "worker", "log_level"),
    }


def test_decode_workers_of_one_machine_take_data_at_ports_of_their_own() -> None:
    processes = planned({"transport": "tcp", "data_port": "9100", "decode": "3"})
    assert [processes[f"decode-{n}"].settings["data_port"] for n in range(3)] == [9100, 9101, 9102]
    unsaid = planned({"transport": "tcp", "decode": "2"})
    assert "data_port" not in unsaid["decode-1"].settings


def test_where_decode_reads_prefill_workers_have_ports_of_their_own() -> None:
    processes = planned({"transport": "tcp", "transfer": "pull", "data_port": "9100", "prefill": "3"})
    assert [processes[f"prefill-{n}"].settings["data_port"] for n in range(3)] == [9100, 9101, 9102]
    assert {process.settings["transfer"] for name, process in processes.items() if name != "router"} == {"pull"}


def test_each_role_has_its_pool() -> None:
    processes = planned({"prefill_pool_tokens": "100", "decode_pool_tokens": "200"})
    assert processes["prefill-0"].settings["pool_tokens"] == 100
    assert processes["decode-0"].settings["pool_tokens"] == 200


def test_equal_workers_are_told_equal_pools() -> None:
    composed = compose(SERVE, {}, environ={})
    processes = plan(composed.build(ServeSettings), composed, RUN, pools=Pools(1024, 2048))
    told = {process.spec.name: process.settings.get("pool_tokens") for process in processes}
    assert told == {"prefill-0": 1024, "decode-0": 2048, "router": None}


def test_several_aggregated_workers() -> None:
    assert list(planned({"mode": "aggregated", "decode": "2"})) == ["aggregated-0", "aggregated-1", "router"]


def test_children_log_warnings_unless_told_more() -> None:
    assert {process.settings["log_level"] for process in planned({}).values()} == {"warning"}
    assert {process.settings["log_level"] for process in planned({"log_level": "info"}).values()} == {"info"}


def test_words_are_the_entrys_then_name_and_file() -> None:
    def entry(role: str, name: str) -> Sequence[str]:
        return ("lab", role, f"--faults-of={name}")

    composed = compose(SERVE, {}, environ={})
    processes = plan(composed.build(ServeSettings), composed, RUN, entry)
    assert [process.spec.argv for process in processes] == [
        ("lab", "prefill", "--faults-of=prefill-0", "--name", "prefill-0", "--config", "/run/q/prefill-0.toml"),
        ("lab", "decode", "--faults-of=decode-0", "--name", "decode-0", "--config", "/run/q/decode-0.toml"),
        ("lab", "router", "--faults-of=router", "--config", "/run/q/router.toml"),
    ]
    assert product_entry("decode", "decode-0")[1:] == ("-m", "quiesce.cli.main", "decode")


@pytest.mark.parametrize(("grace_s", "parts"), [(30.0, (25.0, 5.0)), (4.0, (3.0, 1.0)), (0.0, (0.0, 0.0))])
def test_grace_is_split_and_not_stretched(grace_s: float, parts: tuple[float, float]) -> None:
    assert split_grace(grace_s) == parts


def test_children_read_their_files_as_they_were_meant(tmp_path: Path) -> None:
    """What serve writes builds the children's own structs, without a problem and without a loss."""
    flags: dict[str, object] = {"page_size": "8", "hold_deadline_s": "2m", "api_key": ("k",), "fence_policy": "fence"}
    processes = planned(flags | {"context_length": "64", "allow_small_pool": True})
    files = {name: tmp_path / f"{name}.toml" for name in processes}
    for name, process in processes.items():
        write_file(files[name], process.settings)

    def read(name: str, *, router: bool = False) -> object:
        composed = compose(ROUTER if router else WORKER, {}, environ={}, config=str(files[name]), known=EVERY_NAME)
        if router:
            return composed.build(RouterSettings)
        return composed.build(WorkerSettings, role="decode", name=name)

    assert read("router", router=True) == RouterSettings(
        api_key=("k",),
        worker=("unix:/run/q/prefill-0.sock", "unix:/run/q/decode-0.sock"),
        grace_s=25.0,
        log_level="warning",
    )
    assert read("decode-0") == WorkerSettings(
        role="decode",
        name="decode-0",
        listen="unix:/run/q/decode-0.sock",
        peer=("prefill-0=unix:/run/q/prefill-0.sock",),
        page_size=8,
        hold_deadline_s=120.0,
        fence_policy="fence",
        context_length=64,
        allow_small_pool=True,
        grace_s=30.0,
        log_level="warning",
    )


def test_the_router_has_its_delay_beside_its_part_of_the_grace() -> None:
    assert stages(["decode-0"], 15.0, 8.0) == [(("router",), 15.0 + 6.0 + 5.0), (["decode-0"], 2.0 + 5.0)]
