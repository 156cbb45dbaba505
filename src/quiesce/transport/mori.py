"""MORI: where its adapter belongs, and why there is none.

What it would be: a `onesided.OneSidedSender` whose line drives MORI-IO, and an `unfenced.UnfencedReceiver`. No
capability is declared, for none was seen.
"""

from __future__ import annotations

from typing import NoReturn

from quiesce.errors import MachineLacksError
from quiesce.protocol.hello import Capabilities

MORI_CAPABILITIES = Capabilities()


def missing() -> str:
    """Why it cannot run here: on no machine that Quiesce runs on."""
    return "MORI's wheel is for Python 3.10 and ROCm only, Quiesce needs Python 3.11, and no adapter was ever run"


def refuse(*_: object) -> NoReturn:
    """In the place of sender and receiver. Raises MachineLacksError."""
    raise MachineLacksError(missing(), remedy="Use --transport tcp.")
