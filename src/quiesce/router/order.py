"""What the router asks of workers for one request, before it is known which ones."""

from __future__ import annotations

import hashlib
import secrets

import msgspec

from quiesce.ids import mint_request_id, mint_room
from quiesce.protocol.dispatch import Sampling, Submit
from quiesce.router.tenants import ANYBODY, Tenant, salt_within

EXPECTED_TOKENS = 128
"""How long an answer is taken to be until it is over, if more is allowed: most end earlier than they may."""

_MOST_SEED = (1 << 63) - 1


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """`token_ids` is a packed little-endian uint32 array of `prompt_tokens`; `tail` is its end, for detokenising.

    `max_tokens` is what the client insists on, `usual_max_tokens` what it gets at most if it did not say. Higher
    `priority` is served first. `tells_prompt`: the log probabilities of the prompt's tokens are wanted, too.
    `cache_salt` is what the client said, and narrows its tenant's salt. `kept`: nothing of the answer is shown before
    it is whole.
    """

    token_ids: bytes
    prompt_tokens: int
    tail: tuple[int, ...] = ()
    sampling: Sampling
    max_tokens: int | None = None
    usual_max_tokens: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    timeout_s: float | None = None
    tells_prompt: bool = False
    tenant: Tenant = ANYBODY
    priority: int = 0
    cache_salt: str = ""
    kept: bool = False

    @property
    def salt(self) -> str:
        """Of its tenant's part of the prefix caches."""
        return salt_within(self.tenant.salt, self.cache_salt)

    @property
    def expected_tokens(self) -> int:
        """What one answer is charged at first, its prompt included."""
        most = self.max_tokens or self.usual_max_tokens or EXPECTED_TOKENS
        return self.prompt_tokens + min(most, EXPECTED_TOKENS)

    def submit(self, prefill: str, fitting_tokens: int, timeout_s: float | None) -> Submit:
        """One try: room and request id are fresh each time."""
        usual = self.usual_max_tokens if self.max_tokens is None else None
        return Submit(
            request=mint_request_id(),
            room=mint_room(),
            token_ids=self.token_ids,
            sampling=self.sampling,
            max_tokens=min(fitting_tokens, usual or fitting_tokens),
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            prefill=prefill,
            salt=self.salt,
            timeout_s=timeout_s,
            tells_prompt=self.tells_prompt,
            priority=self.priority,
        )


def with_seed_of(order: Order, number: int) -> Order:
    """The order of answer `number` to the same prompt: seeds that follow from the request's; the first has its own."""
    seed = order.sampling.seed or 0
    if number == 0:
        return order
    hasher = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8, person=b"quiesce-seed")
    derived = int.from_bytes(hasher.digest(), "little") & _MOST_SEED
    return msgspec.structs.replace(order, sampling=msgspec.structs.replace(order.sampling, seed=derived))


def at_most(order: Order, tokens: int) -> Order:
    """The order with an answer of at most `tokens`, unless its client named a length."""
    if order.max_tokens is not None:
        return order
    return msgspec.structs.replace(order, usual_max_tokens=min(order.usual_max_tokens or tokens, tokens))


def mint_seed() -> int:
    """63 random bits for a request that names no seed."""
    return secrets.randbits(63)
