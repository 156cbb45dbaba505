"""Sequences on an engine's pages, and models that `transformers` computes too."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from transformers import AutoModelForCausalLM

from quiesce.engine.engine import AbortFlag, Engine
from quiesce.kv.storage import Pool
from quiesce.text import catalog

Ids = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]

CONTEXT_TOKENS = 512
"""What each sequence's pages hold in these tests."""


class Seats:
    """An engine bound to a pool of garbage, with room for several sequences on scattered pages."""

    def __init__(self, engine: Engine, page_size: int, sequences: int = 1, seed: int = 0) -> None:
        layout = engine.layout(page_size)
        per_sequence = layout.pages_for(CONTEXT_TOKENS)
        self.engine = engine
        self.pool = Pool.private(layout, sequences * per_sequence)
        self.pool.kv[:] = np.float32(np.nan)  # whoever reads what was not written has NaN in the answer
        order = np.random.default_rng(seed).permutation(sequences * per_sequence).astype(np.int32)
        self.pages = order.reshape(sequences, per_sequence)
        engine.bind(self.pool)

    def prefill(self, ids: Ids, cuts: Sequence[int] = (), sequence: int = 0) -> Logits:
        """Logits (vocab,) of the last token; `ids` in chunks that end at `cuts`."""
        bounds = [0, *cuts, ids.size]
        logits = None
        for start, end in itertools.pairwise(bounds):
            needed = self.pool.layout.pages_for(end)
            pages = self.pages[sequence, :needed]
            last = end == ids.size
            logits = self.engine.prefill_chunk(ids[start:end], start, pages, AbortFlag(), want_logits=last)
            assert (logits is not None) == last
        assert logits is not None
        return logits

    def decode(self, ids: Sequence[int], positions: Sequence[int], sequences: Sequence[int]) -> Logits:
        """Logits (B, vocab) after one token of each of these sequences."""
        table = self.pages[list(sequences)]
        return self.engine.decode_step(np.array(ids, np.int32), np.array(positions, np.int32), table)

    def greedy(self, ids: Ids, count: int) -> list[int]:
        tokens = [int(self.prefill(ids).argmax())]
        while len(tokens) < count:
            position = ids.size + len(tokens) - 1
            tokens.append(int(self.decode(tokens[-1:], [position], [0])[0].argmax()))
        return tokens


def random_ids(count: int, vocab: int, seed: int = 0) -> Ids:
    return np.random.default_rng(seed).integers(0, vocab, count).astype(np.int32)


def oracle_logits(model: Any, ids: Ids) -> Logits:
    """What `transformers` says: logits (tokens, vocab)."""
    with torch.inference_mode():
        result: Logits = model(torch.from_numpy(ids.astype(np.int64))[None]).logits[0].float().numpy()
    return result


@pytest.fixture(scope="session")
def tiny() -> Engine:
    return Engine.load("tiny")


@pytest.fixture(scope="session")
def exact_tiny() -> Engine:
    return Engine.load("tiny", deterministic=True)


@pytest.fixture(scope="session")
def smollm2() -> Engine:
    return Engine.load("smollm2")


@pytest.fixture(scope="session")
def smollm2_oracle(smollm2: Engine) -> Any:
    directory = catalog.prepare(catalog.resolve("smollm2"))
    oracle: Any = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    return oracle.eval()


@pytest.fixture(scope="session")
def save_random_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., tuple[Path, Any]]:
    """Make a small random model of `transformers`, and a directory that holds it."""

    def save(config: Any, dtype: torch.dtype = torch.float32, **options: Any) -> tuple[Path, Any]:
        torch.manual_seed(7)
        auto: Any = AutoModelForCausalLM
        model = auto.from_config(config, dtype=torch.float32).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                # Norms start as ones and biases as zeros, which would hide that they are ignored.
                centre, spread = (1.0, 0.2) if "norm" in name else (0.0, 0.3)
                parameter.normal_(centre, spread)
                parameter.copy_(parameter.to(dtype))
        directory = tmp_path_factory.mktemp("model")
        copy.deepcopy(model).to(dtype).save_pretrained(directory, **options)
        (directory / "tokenizer.json").write_text("{}")
        return directory, model

    return save
