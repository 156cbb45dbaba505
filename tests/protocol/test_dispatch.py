"""Router and worker frames are plain data: what is left out means the harmless thing."""

from __future__ import annotations

from quiesce.ids import RequestId, Room
from quiesce.protocol.dispatch import Failed, Load, Sampling, Submit, Tokens
from tests.protocol.scene import GONE, RID


def test_defaults() -> None:
    submit = Submit(RID, Room(1), b"\1\0\0\0", Sampling())
    assert (submit.max_tokens, submit.ignore_eos, submit.salt, submit.stop_token_ids) == (None, False, "", ())
    assert Sampling() == Sampling(temperature=1.0, top_p=1.0, top_k=0, seed=None)
    assert Load(0, 0, 0).ready
    assert not Failed(RequestId("r"), GONE).rejected
    assert Tokens(RID, (1,)).finish == ""
