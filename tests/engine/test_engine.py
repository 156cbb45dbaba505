"""The engine's own promises: aborts, pages it may touch, refusals, `tiny`."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest

from quiesce.engine.crew import Crew
from quiesce.engine.engine import Aborted, AbortFlag, Engine
from quiesce.errors import ConfigurationError, InvariantBroken, MachineLacksError
from quiesce.kv.storage import Pool
from quiesce.text import tiny as tiny_vocabulary
from tests.engine.conftest import Seats, random_ids


def test_tiny_has_the_promised_shape(tiny: Engine) -> None:
    """256 bytes of KV per token, a context of 1,048,576 tokens; padding ids cannot be drawn."""
    assert tiny.layout(16).token_bytes == 256
    assert tiny.config.context_length == 1_048_576
    logits = Seats(tiny, 16).prefill(random_ids(20, 256))
    assert logits.shape == (tiny_vocabulary.VOCAB_SIZE,)
    assert np.isfinite(logits[: tiny_vocabulary.USED_TOKENS]).all()
    assert np.isneginf(logits[tiny_vocabulary.USED_TOKENS :]).all()


def test_tiny_depends_on_its_whole_context(tiny: Engine) -> None:
    """Another first token changes the answer: a demonstration of foreign context needs a model that notices."""
    seats = Seats(tiny, 16)
    ids = random_ids(200, 256)
    other = ids.copy()
    other[0] ^= 1
    used = slice(0, tiny_vocabulary.USED_TOKENS)
    assert np.abs(seats.prefill(ids)[used] - seats.prefill(other)[used]).max() > 1e-3
    assert len(set(seats.greedy(ids, 40))) > 10


def test_tiny_is_the_same_in_every_process(tiny: Engine) -> None:
    assert Engine.load("tiny").fingerprint == tiny.fingerprint
    assert Engine.load("tiny", context_length=1000).fingerprint == tiny.fingerprint


@pytest.mark.parametrize("page_size", [1, 16, 64])
def test_only_the_places_of_the_computed_positions_are_written(tiny: Engine, page_size: int) -> None:
    """Prefill and decode leave every other byte of the pool alone, within their own pages too."""
    seats = Seats(tiny, page_size, sequences=3)
    seats.prefill(random_ids(50, 256), [33], sequence=1)
    seats.decode([7, 8], [50, 0], [1, 2])
    written = ~np.isnan(seats.pool.kv).any(axis=(1, 2, 4, 5))
    expected = np.zeros_like(written)
    for sequence, tokens in ((1, 51), (2, 1)):
        positions = np.arange(tokens)
        expected[seats.pages[sequence][positions // page_size], positions % page_size] = True
    assert np.array_equal(written, expected)


def test_an_abort_is_noticed_before_the_next_layer(tiny: Engine) -> None:
    """A set flag raises at once; a flag set between layers leaves the later layers unwritten."""
    seats = Seats(tiny, 16)
    flag = AbortFlag()
    flag.aborted = True
    with pytest.raises(Aborted):
        tiny.prefill_chunk(random_ids(8, 256), 0, seats.pages[0][:1], flag, want_logits=True)
    assert np.isnan(seats.pool.kv).all()

    class AfterOneLayer(AbortFlag):
        def check(self) -> None:
            super().check()
            self.aborted = True

    with pytest.raises(Aborted):
        tiny.prefill_chunk(random_ids(8, 256), 0, seats.pages[0][:1], AfterOneLayer(), want_logits=True)
    written = ~np.isnan(seats.pool.kv).all(axis=(0, 2, 3, 4, 5))
    assert written.tolist() == [True, False]


def test_pages_that_do_not_fit_are_refused(tiny: Engine) -> None:
    """Kernels check no bounds; the engine does, before they run."""
    seats = Seats(tiny, 16)
    ids = random_ids(17, 256)
    with pytest.raises(InvariantBroken, match="cover"):
        tiny.prefill_chunk(ids, 0, seats.pages[0][:1], AbortFlag(), want_logits=False)
    with pytest.raises(InvariantBroken, match="in the pool"):
        tiny.prefill_chunk(ids, 0, np.array([0, seats.pool.pages], np.int32), AbortFlag(), want_logits=False)
    with pytest.raises(InvariantBroken, match="in the pool"):
        tiny.decode_step(ids[:1], np.array([0], np.int32), np.array([[-1]], np.int32))
    with pytest.raises(InvariantBroken, match="cover"):
        tiny.decode_step(ids[:1], np.array([16], np.int32), np.array([[0]], np.int32))
    with pytest.raises(InvariantBroken, match="batch"):
        tiny.decode_step(ids[:2], np.array([0, 0], np.int32), np.array([[0]], np.int32))
    with pytest.raises(InvariantBroken, match="ids"):
        tiny.decode_step(
            np.array([tiny.config.vocab_size], np.int32), np.array([0], np.int32), np.array([[0]], np.int32)
        )


def test_a_pool_of_another_layout_is_refused(tiny: Engine, smollm2: Engine) -> None:
    with pytest.raises(InvariantBroken, match="layout"):
        smollm2.bind(Pool.private(tiny.layout(16), 4))


def test_an_engine_without_pool_computes_nothing() -> None:
    with pytest.raises(InvariantBroken, match="bound"):
        Engine.load("tiny").decode_step(np.zeros(1, np.int32), np.zeros(1, np.int32), np.zeros((1, 1), np.int32))


def test_warm_up_leaves_the_bound_pool_alone(tiny: Engine) -> None:
    seats = Seats(tiny, 16)
    tiny.warm_up()
    assert np.isnan(seats.pool.kv).all()


def test_two_threads_compute_the_same(tiny: Engine) -> None:
    """Attention is shared out by spans, or by heads; the numbers stay."""
    ids = random_ids(300, 256)
    both = Engine.load("tiny", threads=2)
    try:
        one, two = Seats(tiny, 16, sequences=3), Seats(both, 16, sequences=3)
        np.testing.assert_allclose(two.prefill(ids), one.prefill(ids), atol=1e-4)
        batch = ([1, 2, 3], [300, 0, 0], [0, 1, 2])
        np.testing.assert_allclose(two.decode(*batch), one.decode(*batch), atol=1e-4)
        single = ([4], [301], [0])
        np.testing.assert_allclose(two.decode(*single), one.decode(*single), atol=1e-4)
    finally:
        Engine.load("tiny", threads=1)  # torch's thread count belongs to the process


def test_refusals_name_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match="computes in float32"):
        Engine.load("tiny", dtype="bfloat16")
    with pytest.raises(ConfigurationError, match="at least one thread"):
        Engine.load("tiny", threads=0)
    with pytest.raises(ConfigurationError, match=r"outside 1\.\.1048576"):
        Engine.load("tiny", context_length=1 << 21)


def test_a_hub_that_cannot_be_reached_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub

    def unreachable(*_: object, **__: object) -> str:
        raise OSError("no route to host")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(MachineLacksError, match=r"no route to host.*local directory"):
        Engine.load("nobody/nothing")


def test_a_crew_does_every_piece_once_and_passes_errors_on() -> None:
    crew = Crew(3)
    done: list[int] = []
    lock = threading.Lock()

    def work(piece: int) -> None:
        with lock:
            done.append(piece)

    crew.share(work, 50)
    assert sorted(done) == list(range(50))

    def fail(piece: int) -> None:
        if piece == 20:
            raise ValueError("piece 20")

    with pytest.raises(ValueError, match="piece 20"):
        crew.share(fail, 50)


def test_the_thread_that_computes_uses_no_more_threads_than_asked_for() -> None:
    """Loaded on one thread, run on another, as a worker does: no OpenMP team appears there."""
    program = """
import os, threading
import numpy as np
from quiesce.engine.engine import AbortFlag, Engine
from quiesce.kv.storage import Pool

engine = Engine.load("tiny", threads=1)
engine.bind(Pool.private(engine.layout(16), 64))
before = len(os.listdir("/proc/self/task"))

def compute():
    engine.prefill_chunk(np.zeros(1024, np.int32), 0, np.arange(64, dtype=np.int32), AbortFlag(), True)
    print(len(os.listdir("/proc/self/task")) - before)

thread = threading.Thread(target=compute)
thread.start()
thread.join()
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "1"
