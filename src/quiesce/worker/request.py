"""A request as it stands at a worker's door."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from quiesce.errors import RequestRejected
from quiesce.ids import Digest, RequestId, Room
from quiesce.integrity.digests import request_digest
from quiesce.protocol.dispatch import Sampling, Submit
from quiesce.protocol.messages import Failure, Fault
from quiesce.worker.grammars import Constraint
from quiesce.worker.links import Link

CLIENT_GONE = Failure("client_closed_request", "The client closed the connection.", Fault.CLIENT, 499)
ROUTER_GONE = Failure("router_lost", "The router that sent this request is gone.", Fault.ROUTER, 503)


class Request:
    """`token_ids` is int32; `digest` is this half's own (PROTOCOL: request digest), never taken from the other half."""

    __slots__ = ("constraint", "digest", "id", "link", "room", "sampling", "seed", "submit", "token_ids")

    def __init__(self, submit: Submit, link: Link, model_fingerprint: str) -> None:
        self.id: RequestId = submit.request
        self.room: Room = submit.room
        self.link = link
        self.submit = submit
        self.sampling: Sampling = submit.sampling
        self.constraint: Constraint | None = None
        self.seed = submit.sampling.seed or 0
        self.token_ids: NDArray[np.int32] = np.frombuffer(submit.token_ids, "<u4").astype(np.int32)
        self.digest: Digest = request_digest(model_fingerprint, "", submit.salt, submit.token_ids)

    @property
    def prompt_tokens(self) -> int:
        return len(self.token_ids)

    @property
    def can_draw(self) -> bool:
        """Whether a draw would not have to wait for its grammar to be compiled."""
        return self.constraint is None or self.constraint.is_ready

    def drop_constraint(self) -> None:
        """The door refused: its grammar need not be compiled."""
        if self.constraint is not None:
            self.constraint.cancel()

    def check_vocabulary(self, vocab_size: int) -> None:
        """Raise RequestRejected when a token id is none of the model's."""
        biased = max((token for token, _ in self.sampling.logit_bias), default=0)
        largest = max(int(self.token_ids.max(initial=0)), biased)
        if largest >= vocab_size or int(self.token_ids.min(initial=0)) < 0:
            raise RequestRejected(
                f"Token id {largest} is not in the model's vocabulary of {vocab_size}.", code="invalid_token_id"
            )


def grammar_failed(problem: str) -> RequestRejected:
    """An answer that cannot go on under its grammar is ended, and no other."""
    return RequestRejected(f"The answer cannot go on under its grammar: {problem}.", code="grammar_failed")


def rejection(error: RequestRejected, fault: Fault) -> Failure:
    """A door's rejection as a frame carries it."""
    return Failure(error.code, error.message, fault, error.status)
