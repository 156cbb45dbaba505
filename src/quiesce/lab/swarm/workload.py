"""What clients ask for: drawn from the seed, or a trace of real traffic made smaller."""

from __future__ import annotations

import hashlib
import random
import struct
from collections.abc import Iterator
from pathlib import Path

import msgspec

from quiesce.errors import UsageError
from quiesce.ids import Digest
from quiesce.integrity.digests import request_digest
from quiesce.lab.swarm.parameters import Parameters

MODEL = "swarm"

TRACE_BLOCK_TOKENS = 512
"""What one hash id of a trace stands for."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `answer` is how many tokens it would say before it ends by itself, `most` is its max_tokens.

    `prompt` tokens come from `blocks`, by number: requests that begin with the same blocks begin alike.
    """

    number: int
    at_s: float
    prompt: int
    blocks: tuple[int, ...]
    answer: int
    most: int | None = None
    tenant: int = 0
    priority: int = 0
    leaves_s: float | None = None
    timeout_s: float | None = None


class Text(msgspec.Struct, frozen=True, eq=False):
    """A prompt: its packed token ids, its digest, and for each page a number for all tokens up to that page's end."""

    tokens: bytes
    digest: Digest
    labels: tuple[int, ...]
    n_tokens: int
    salt: str


class Texts:
    """Prompts by what they are made of; equal beginnings have equal labels, and no others have."""

    def __init__(self, page_size: int) -> None:
        self._page_bytes = page_size * 4
        self._block_tokens = 2 * page_size
        self._texts: dict[tuple[tuple[int, ...], int, int], Text] = {}

    def of(self, ask: Ask) -> Text:
        key = (ask.blocks, ask.prompt, ask.tenant)
        found = self._texts.get(key)
        if found is None:
            if len(self._texts) > 4096:
                self._texts.clear()
            found = self._texts[key] = self._make(ask)
        return found

    def _make(self, ask: Ask) -> Text:
        whole = b"".join(struct.pack("<I", block) * self._block_tokens for block in ask.blocks)
        tokens = whole[: ask.prompt * 4].ljust(ask.prompt * 4, b"\1")
        salt = f"tenant {ask.tenant}"
        labels = []
        before = salt.encode()
        for at in range(0, len(tokens), self._page_bytes):
            before = hashlib.blake2b(before + tokens[at : at + self._page_bytes], digest_size=6).digest()
            labels.append(int.from_bytes(before, "little"))
        return Text(tokens, request_digest(MODEL, "", salt, tokens), tuple(labels), ask.prompt, salt)


def synthesize(p: Parameters, seconds: float) -> tuple[Ask, ...]:
    """Requests for so many seconds of simulated time."""
    rng = random.Random(f"quiesce swarm {p.seed} clients")
    asks: list[Ask] = []
    at_s = rng.expovariate(p.requests_per_s)
    while at_s < seconds:
        asks.append(_ask(p, rng, len(asks) + 1, at_s))
        rate = p.requests_per_s * ((4.0 if int(at_s) % 20 < 4 else 0.25) if p.bursts else 1.0)
        at_s += rng.expovariate(rate)
    return tuple(_repeated(p, asks))


def _repeated(p: Parameters, asks: list[Ask]) -> Iterator[Ask]:
    """Some say once more what was said before, word for word and in the same tenant's name: their digests are equal."""
    rng = random.Random(f"quiesce swarm {p.seed} repeats")
    for at, ask in enumerate(asks):
        if at and rng.random() < p.repeats:
            old = asks[rng.randrange(max(0, at - 8), at)]
            ask = msgspec.structs.replace(ask, prompt=old.prompt, blocks=old.blocks, tenant=old.tenant)
        yield ask


def _ask(p: Parameters, rng: random.Random, number: int, at_s: float) -> Ask:
    block_tokens = 2 * p.page_size
    prompt = max(1, int(p.longest_prompt_tokens * rng.random() ** 2))
    if rng.random() < p.oversized:
        prompt = p.context_tokens + rng.randrange(1, 100)
    n_blocks = -(-prompt // block_tokens)
    shared = rng.randrange(p.shared_prefixes) if p.shared_prefixes and rng.random() < 0.7 else None
    fresh = rng.randrange(1 << 30) + 1000
    blocks = tuple(fresh + n if shared is None or n > 2 * shared + 1 else 10 * shared + n for n in range(n_blocks))
    return Ask(
        number=number,
        at_s=round(at_s, 6),
        prompt=prompt,
        blocks=blocks,
        answer=max(1, int(p.longest_answer_tokens * rng.random() ** 2)),
        most=None if rng.random() < 0.3 else rng.randint(1, p.longest_answer_tokens),
        tenant=int(p.tenants * rng.random() ** 2),
        priority=rng.choice([0, 0, 0, 1]),
        leaves_s=round(rng.expovariate(1.0) * p.patience_s, 6) if rng.random() < p.leaving else None,
        timeout_s=round(0.05 + rng.expovariate(0.5), 6) if rng.random() < p.timeouts else None,
    )


class _Line(msgspec.Struct):
    timestamp: int
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...]


def from_trace(path: Path, p: Parameters, seconds: float) -> tuple[Ask, ...]:
    """The requests of a trace in Mooncake's format (JSON lines: timestamp in ms, input_length, output_length,
    hash_ids), lengths scaled down so that the longest prompt is the parameters'. Clients leave as the seed says.

    Raises UsageError for a file that is none.
    """
    try:
        lines = [msgspec.json.decode(line, type=_Line) for line in path.read_bytes().splitlines() if line.strip()]
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path} is no trace: {error}", remedy="One JSON object a line is wanted.") from None
    if not lines:
        raise UsageError(f"{path} has no request.")
    rng = random.Random(f"quiesce swarm {p.seed} clients")
    scale = max(1, max(line.input_length for line in lines) // p.longest_prompt_tokens)
    said = max(1, max(line.output_length for line in lines) // p.longest_answer_tokens)
    span_s = lines[-1].timestamp / 1000 + 1
    asks: list[Ask] = []
    for lap in range(int(seconds // span_s) + 1):
        for line in lines:
            at_s = lap * span_s + line.timestamp / 1000 + rng.random() * 0.5
            if at_s < seconds:
                asks.append(_scaled(p, rng, line, len(asks) + 1, at_s, scale, said))
    return tuple(asks)


def _scaled(p: Parameters, rng: random.Random, line: _Line, number: int, at_s: float, scale: int, said: int) -> Ask:
    drawn = _ask(p, rng, number, at_s)
    prompt = max(1, line.input_length // scale)
    answer = max(1, line.output_length // said)
    wanted = -(-prompt // (2 * p.page_size))
    step = max(1, 2 * p.page_size * scale // TRACE_BLOCK_TOKENS)
    blocks = (line.hash_ids[::step] + line.hash_ids[-1:] * wanted)[:wanted]
    return msgspec.structs.replace(drawn, prompt=prompt, blocks=blocks, answer=answer, most=None)
