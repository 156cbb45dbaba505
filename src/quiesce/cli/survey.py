"""What can be known before any process starts: whether the model can be served, pool sizes, what will take long."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from quiesce.cli.serve_settings import ServeSettings
from quiesce.cli.settings import Composed
from quiesce.cli.spare_choice import SpareChoice, choose_spare
from quiesce.engine.config import TINY, ModelConfig, read_config
from quiesce.engine.kernel_cache import are_compiled
from quiesce.engine.shapes import weights_bytes
from quiesce.engine.weight_files import tensor_files
from quiesce.errors import ConfigurationError
from quiesce.kv.layout import Layout
from quiesce.text import catalog, tiny
from quiesce.text.catalog import ModelSource
from quiesce.text.model_cache import cache_root
from quiesce.units import show_bytes
from quiesce.worker.sizes import (
    PoolSize,
    asked_pool,
    available_memory_bytes,
    context_problem,
    default_pool,
    landing_excess,
    landing_problem,
    pool_problem,
)

_GENERATING_FLAG = "--decode-pool-tokens"
_PREFILL_FLAG = "--prefill-pool-tokens"


class Survey(msgspec.Struct, frozen=True):
    """`prefill_pool` and `decode_pool` are each worker's; `converts_to` is a file that the first start has to make."""

    config: ModelConfig
    prefill_pool: PoolSize
    decode_pool: PoolSize
    converts_to: Path | None = None
    compiles: bool = False
    spare: SpareChoice = SpareChoice(None)

    def stage(self) -> str:
        """What workers that have not answered yet are at."""
        if self.converts_to is not None and not self.converts_to.exists():
            return f"converting weights (once, {show_bytes(weights_bytes(self.config))} in {_short(cache_root())})"
        return "compiling kernels (once)" if self.compiles else "loading the model"


def survey(source: ModelSource, settings: ServeSettings, composed: Composed, say: Callable[[str], None]) -> Survey:
    """Prepare the model's config and tokenizer (a hub id is downloaded) and check sizes.

    Raises ConfigurationError with every problem, MachineLacksError.
    """
    config, converts_to = _config(source, say)
    prefill, decode = _pools(settings, composed, config)
    if problems := _problems(settings, composed, config, prefill, decode):
        raise ConfigurationError(problems)
    spare = choose_spare(settings.spare, weights_bytes(config), available_memory_bytes())
    return Survey(config, prefill, decode, converts_to, compiles=not are_compiled(config), spare=spare)


def _config(source: ModelSource, say: Callable[[str], None]) -> tuple[ModelConfig, Path | None]:
    """The model's config, and the weights that are still to be made."""
    if source.kind == tiny.NAME:
        return TINY, None
    if source.kind == "hub":
        say(f"fetching {source.name} from the hub, unless it is here already")
    elif source.directory is not None and not source.directory.exists():
        say(f"reading {source.gguf}")
    directory = catalog.prepare(source)
    config = read_config(directory, source.name)
    if source.gguf is not None:
        weights = directory / "model.safetensors"
        return config, None if weights.exists() else weights
    tensor_files(directory)
    return config, None


def _pools(settings: ServeSettings, composed: Composed, config: ModelConfig) -> tuple[PoolSize, PoolSize]:
    """Those of prefill and of the others. Memory is measured once, so that equal workers get equal pools."""
    layout = _layout(composed, config)
    context = composed.get("context_length") or config.context_length
    numbers = (context, composed.get("max_running_requests"), composed.get("memory_share"))
    default = default_pool(settings.model, *msgspec.convert(numbers, tuple[int, int, float]), layout)
    asked = (settings.prefill_pool_tokens, settings.decode_pool_tokens)
    prefill, decode = (default if tokens is None else asked_pool(tokens, layout.page_size) for tokens in asked)
    return prefill, decode


def _problems(
    settings: ServeSettings, composed: Composed, config: ModelConfig, prefill: PoolSize, decode: PoolSize
) -> list[str]:
    asked = msgspec.convert(composed.get("context_length"), int | None)
    landing_bytes = msgspec.convert(composed.get("landing_bytes"), int | None)
    found = [context_problem(asked, config.context_length), landing_excess(landing_bytes)]
    if not composed.get("allow_small_pool"):
        pools = [(_GENERATING_FLAG, decode)]
        if settings.mode == "pd":
            pools.insert(0, (_PREFILL_FLAG, prefill))
        layout = _layout(composed, config)
        for flag, pool in pools:
            sized_by = "--memory-share" if pool.asked is None else flag
            found.append(pool_problem(asked, config.context_length, pool, layout, sized_by))
        if settings.mode == "pd" and composed.get("landing") == "staged":
            context = asked or config.context_length
            found.append(landing_problem(landing_bytes, context, decode, layout))
    return [problem for problem in dict.fromkeys(found) if problem]


def _layout(composed: Composed, config: ModelConfig) -> Layout:
    return config.layout(msgspec.convert(composed.get("page_size"), int))


def _short(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
