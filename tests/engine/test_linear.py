"""One product, four ways to compute it: packed, not packed, single rows from the file's weights, tiles."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from quiesce.engine import linear as linear_module
from quiesce.engine.config import TINY
from quiesce.engine.kernels import compile_kernels
from quiesce.engine.linear import Linear

K = 72
PARTS = (40, 13, 3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("packs", [True, False])
@pytest.mark.parametrize("way", ["product", "plain", "deterministic"])
def test_every_way_gives_the_product(way: str, packs: bool, bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """One row and many, with and without a residual, of three stacked matrices of odd sizes."""
    if not packs:
        monkeypatch.setattr(linear_module, "_can_pack", lambda: False)
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(n, K, generator=generator) for n in PARTS]
    offset = torch.randn(sum(PARTS), generator=generator) if bias else None
    product = compile_kernels(TINY).product if way == "product" else None
    with torch.inference_mode():
        linear = Linear(parts, offset, product=product, deterministic=way == "deterministic")
        for rows in (1, 2, 16, 17, 50):
            x = torch.randn(rows, K, generator=generator)
            residual = torch.randn(rows, sum(PARTS), generator=generator)
            expected = x.double() @ torch.cat(parts).double().T + (0 if offset is None else offset.double())
            before = residual.clone()
            np.testing.assert_allclose(linear(x.numpy()), expected.numpy(), atol=1e-4)
            added = linear.add_to(residual.numpy(), x.numpy())
            np.testing.assert_allclose(added, (expected + residual).numpy(), atol=1e-4)
            assert torch.equal(residual, before), "the residual is an input"
