"""Options of other servers, and what they are called here: said when somebody types one."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# Their option to ours.
_OURS = {
    "--max-model-len": "--context-length",
    "--max-num-seqs": "--max-running-requests",
    "--mem-fraction-static": "--memory-share",
    "--gpu-memory-utilization": "--memory-share",
    "--model-path": "--model",
    "--block-size": "--page-size",
    "--max-num-batched-tokens": "--max-prefill-tokens",
    "--chunked-prefill-size": "--max-prefill-tokens",
}
_ONE_PROCESS = "not supported: on CPU a worker is one process; --threads says how many threads it computes with."
_OWN_COMMANDS = "`quiesce serve` starts both roles; `quiesce prefill` and `quiesce decode` run one worker each."
_ELSEWHERE = {
    "--tensor-parallel-size": _ONE_PROCESS,
    "--tp-size": _ONE_PROCESS,
    "--tp": _ONE_PROCESS,
    "--disaggregation-mode": _OWN_COMMANDS,
    "--kv-transfer-config": f"{_OWN_COMMANDS} --transport says how pages travel.",
}
_ALIKE = 0.75
"""How similar a name must be to be suggested; click's 0.6 finds --mode for --max-model-len."""


def explain(name: str, known: Collection[str]) -> str:
    """What to say of an option that a command with the options `known` does not have."""
    if name in _ELSEWHERE:
        return f"No such option: {name}. {_ELSEWHERE[name]}"
    if _OURS.get(name) in known:
        return f"No such option: {name}. Here it is {_OURS[name]}."
    alike = " or ".join(difflib.get_close_matches(name, sorted(known), cutoff=_ALIKE))
    return f"No such option: {name}. Did you mean {alike}?" if alike else f"No such option: {name}."
