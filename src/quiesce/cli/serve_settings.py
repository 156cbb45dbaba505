"""What `quiesce serve` can be told beside its workers' and its router's own settings."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quiesce.control import flags


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One server on this machine: a router and its workers. Durations are seconds."""

    model: Annotated[str, Meta(description="smollm2, tiny, a Hugging Face directory, a .gguf file, or a hub id.")] = (
        "smollm2"
    )
    host: Annotated[str, Meta(description="Address to listen on; 0.0.0.0 for all.")] = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65535, description="HTTP port; 0 takes a free one.")] = 8000
    mode: Annotated[
        Literal["pd", "aggregated"], Meta(description="Prefill and decode apart, or both in one worker.")
    ] = "pd"
    prefill: Annotated[int, Meta(ge=1, le=64, description="Prefill workers; none with --mode aggregated.")] = 1
    decode: Annotated[
        int, Meta(ge=1, le=64, description="Decode workers; with --mode aggregated, workers that do both halves.")
    ] = 1
    prefill_pool_tokens: Annotated[
        int | None,
        Meta(ge=1, description="KV pool of each prefill worker. Default: --memory-share of free memory at start."),
    ] = None
    decode_pool_tokens: Annotated[
        int | None, Meta(ge=1, description="KV pool of each decode (or aggregated) worker. Default: as for prefill.")
    ] = None
    grace_s: Annotated[
        float,
        Meta(
            ge=0.0,
            description="How long SIGTERM or Ctrl-C lets running requests finish; a second one ends all. "
            "Processes have 10 s more to exit.",
        ),
    ] = 30.0
    spare: Annotated[
        Literal["auto", "model", "libraries", "off"],
        Meta(
            description="What a process has loaded that waits to take the place of a worker that dies (one more waits "
            "for the router). auto: the model if it takes no more than a tenth of free memory, else libraries."
        ),
    ] = "auto"
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="How much router and workers log; info tells of every connection and restart."),
    ] = "warning"
    log_format: flags.LogFormat = "text"
