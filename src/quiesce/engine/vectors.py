"""Float32 vector code for numba kernels, written as LLVM instructions.

Numba has no vector types, and what its compiler vectorises by itself is slower here and rounds as it pleases. This
code is explicit: every sum has one order and every multiply-add rounds once, so its bits depend on its operands only.
Vectors are LANES wide; narrower machines split them. Addresses are int64; n is 1..BLOCK.
"""

from __future__ import annotations

from typing import Any

import numba.core
import numba.extending
from llvmlite import ir  # type: ignore[import-untyped]

# Numba is typed for kernels, not for those who extend its compiler.
cgutils: Any = numba.core.cgutils
types: Any = numba.core.types
intrinsic: Any = numba.extending.intrinsic

LANES = 16
BLOCK = 64
"""Positions per block of keys and values."""

STATE_LANES = 2 * LANES
"""Floats of a query's softmax state in front of its accumulator: the highest score (repeated), and partial sums."""

_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)
_IVECTOR = ir.VectorType(_I32, LANES)
_NEVER = -1e30
_QUERIES = 4
"""Queries computed side by side: enough independent sums to keep the multipliers busy."""

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
"""Cephes' polynomial for (e**r - 1 - r) / r**2 on |r| <= ln 2 / 2."""


@intrinsic  # type: ignore[untyped-decorator]
def transpose(typingctx: Any, sources: Any, offset_bytes: Any, target: Any, stride_bytes: Any) -> Any:
    """Transpose LANES x LANES floats in registers.

    `sources` is the address of LANES addresses; row i is read at the i-th plus `offset_bytes`, column i is written at
    `target + i * stride_bytes`.
    """
    del typingctx, sources, offset_bytes, target, stride_bytes

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        table, offset, column, stride = arguments
        addresses = [_load(builder, table, 8 * lane, _I64) for lane in range(LANES)]
        rows = [_load(builder, builder.add(address, offset), 0) for address in addresses]
        for vector in _interleaved(builder, rows):
            _store(builder, vector, column, 0)
            column = builder.add(column, stride)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64, types.int64), code


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator]
def attend_block(
    typingctx: Any, head_dim: Any, group: Any, queries: Any, keys: Any, values: Any, offset: Any, n: Any, states: Any
) -> Any:
    """Fold the first `n` positions of a block into the states of `group` queries (constants: head_dim, group).

    `queries`: address of (group, head_dim), already scaled. `keys`: address of (head_dim, BLOCK). `values`: address of
    BLOCK addresses; position j's (head_dim,) lies at the j-th plus `offset`. `states`: address of (group,
    STATE_LANES + head_dim), changed in place.
    """
    del typingctx
    hd, g_size = head_dim.literal_value, group.literal_value

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        _, _, q_at, k_at, v_table, v_offset, count, state_at = arguments
        for first in range(0, g_size, _QUERIES):
            side = min(_QUERIES, g_size - first)
            scores = _scores(builder, hd, side, _at(builder, q_at, 4 * first * hd), k_at)
            state = [_at(builder, state_at, 4 * (first + q) * (STATE_LANES + hd)) for q in range(side)]
            weights = [_soften(builder, scores[q], count, state[q], hd) for q in range(side)]
            _weigh(builder, hd, weights, v_table, v_offset, count, [_at(builder, at, 4 * STATE_LANES) for at in state])
        return context.get_dummy_value()

    pointers = [types.int64] * 6
    return types.void(types.literal(hd), types.literal(g_size), *pointers), code


@intrinsic  # type: ignore[untyped-decorator]
def gate_vector(typingctx: Any, gate: Any, up: Any, out: Any) -> Any:
    """out = silu(gate) * up for LANES floats at these addresses."""
    del typingctx, gate, up, out

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        del signature
        gate_at, up_at, out_at = arguments
        x = _load(builder, gate_at, 0)
        decay = builder.fadd(_exp(builder, builder.fneg(x)), _constant(1.0))
        _store(builder, builder.fmul(builder.fdiv(x, decay), _load(builder, up_at, 0)), out_at, 0)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64, types.int64), code


def _scores(builder: Any, hd: int, side: int, q_at: Any, k_at: Any) -> list[list[Any]]:
    """side x (BLOCK / LANES) vectors of q . k, each summed over the head dimension in order."""
    sums = [[_constant(0.0)] * (BLOCK // LANES) for _ in range(side)]
    for d in range(hd):
        keys = [_load(builder, k_at, 4 * (d * BLOCK + v * LANES)) for v in range(BLOCK // LANES)]
        for q in range(side):
            factor = _spread(builder, _load(builder, q_at, 4 * (q * hd + d), _FLOAT))
            sums[q] = [_fma(builder, factor, key, part) for key, part in zip(keys, sums[q], strict=True)]
    return sums


def _soften(builder: Any, scores: list[Any], count: Any, state_at: Any, hd: int) -> Any:
    """Turn scores into weights (returned: an address), and fade what the state held to the new highest score."""
    lanes = ir.Constant(_IVECTOR, list(range(LANES)))
    limit = _spread(builder, builder.trunc(count, _I32))
    inside = [
        builder.icmp_signed("<", builder.add(lanes, ir.Constant(_IVECTOR, [v * LANES] * LANES)), limit)
        for v in range(len(scores))
    ]
    scores = [builder.select(mask, score, _constant(_NEVER)) for mask, score in zip(inside, scores, strict=True)]
    before = _load(builder, state_at, 0)
    high = _spread(builder, _highest(builder, [before, *scores]))
    fade = _exp(builder, builder.fsub(before, high))
    weights = [
        builder.select(mask, _exp(builder, builder.fsub(score, high)), _constant(0.0))
        for mask, score in zip(inside, scores, strict=True)
    ]
    total = builder.fmul(_load(builder, state_at, 4 * LANES), fade)
    for weight in weights:
        total = builder.fadd(total, weight)
    _store(builder, high, state_at, 0)
    _store(builder, total, state_at, 4 * LANES)
    for v in range(hd // LANES):
        place = 4 * (STATE_LANES + v * LANES)
        _store(builder, builder.fmul(_load(builder, state_at, place), fade), state_at, place)
    scratch = cgutils.alloca_once(builder, ir.ArrayType(_VECTOR, len(weights)))
    address = builder.ptrtoint(scratch, _I64)
    for v, weight in enumerate(weights):
        _store(builder, weight, address, 4 * v * LANES)
    return address


def _weigh(
    builder: Any, hd: int, weights: list[Any], v_table: Any, v_offset: Any, count: Any, acc_at: list[Any]
) -> None:
    """acc += weights @ values for a few queries, adding in the order of positions."""
    parts = hd // LANES
    acc = [[cgutils.alloca_once(builder, _VECTOR) for _ in range(parts)] for _ in weights]
    for slots, at in zip(acc, acc_at, strict=True):
        for v, slot in enumerate(slots):
            builder.store(_load(builder, at, 4 * v * LANES), slot)
    with cgutils.for_range(builder, count) as loop:
        row = builder.add(_load(builder, builder.add(v_table, builder.shl(loop.index, _index(3))), 0, _I64), v_offset)
        values = [_load(builder, row, 4 * v * LANES) for v in range(parts)]
        for slots, weight_at in zip(acc, weights, strict=True):
            at = builder.add(weight_at, builder.shl(loop.index, _index(2)))
            weight = _spread(builder, _load(builder, at, 0, _FLOAT))
            for value, slot in zip(values, slots, strict=True):
                builder.store(_fma(builder, weight, value, builder.load(slot)), slot)
    for slots, at in zip(acc, acc_at, strict=True):
        for v, slot in enumerate(slots):
            _store(builder, builder.load(slot), at, 4 * v * LANES)


def _interleaved(builder: Any, rows: list[Any]) -> list[Any]:
    """Columns of a square of vectors, by log2(LANES) rounds of interleaving vector i with vector i + LANES / 2."""
    half = LANES // 2
    low = [lane for i in range(half) for lane in (i, i + LANES)]
    masks = [ir.Constant(_IVECTOR, picks) for picks in (low, [lane + half for lane in low])]
    for _ in range(LANES.bit_length() - 1):
        rows = [builder.shuffle_vector(rows[i], rows[i + half], mask) for i in range(half) for mask in masks]
    return rows


def _exp(builder: Any, x: Any) -> Any:
    """e**x to about one unit in the last place for x clamped to [-87, 88]: e**-87 is nothing beside a sum of 1."""
    low, high = _constant(-87.0), _constant(88.0)
    x = builder.select(builder.fcmp_ordered(">", x, low), x, low)
    x = builder.select(builder.fcmp_ordered("<", x, high), x, high)
    biased = builder.fptosi(_fma(builder, x, _constant(1.44269504088896), _constant(127.5)), _IVECTOR)
    whole = builder.sitofp(builder.sub(biased, ir.Constant(_IVECTOR, [127] * LANES)), _VECTOR)
    r = _fma(builder, whole, _constant(-0.693359375), x)
    r = _fma(builder, whole, _constant(2.12194440e-4), r)
    p = _constant(_EXP[0])
    for coefficient in _EXP[1:]:
        p = _fma(builder, p, r, _constant(coefficient))
    p = _fma(builder, p, builder.fmul(r, r), builder.fadd(r, _constant(1.0)))
    power = builder.bitcast(builder.shl(biased, ir.Constant(_IVECTOR, [23] * LANES)), _VECTOR)
    return builder.fmul(p, power)


def _highest(builder: Any, vectors: list[Any]) -> Any:
    best = vectors[0]
    for other in vectors[1:]:
        best = builder.select(builder.fcmp_ordered(">", best, other), best, other)
    return _call(builder, f"llvm.vector.reduce.fmax.v{LANES}f32", _FLOAT, best)


def _fma(builder: Any, a: Any, b: Any, c: Any) -> Any:
    return _call(builder, f"llvm.fma.v{LANES}f32", _VECTOR, a, b, c)


def _call(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    function = builder.module.globals.get(name)
    if function is None:
        function = ir.Function(builder.module, ir.FunctionType(result, [value.type for value in arguments]), name)
    return builder.call(function, arguments)


def _spread(builder: Any, scalar: Any) -> Any:
    """The scalar in every lane."""
    kind = ir.VectorType(scalar.type, LANES)
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), scalar, ir.Constant(_I32, 0))
    return builder.shuffle_vector(single, ir.Constant(kind, ir.Undefined), ir.Constant(_IVECTOR, [0] * LANES))


def _constant(value: float) -> Any:
    return ir.Constant(_VECTOR, [value] * LANES)


def _index(value: int) -> Any:
    return ir.Constant(_I64, value)


def _at(builder: Any, address: Any, offset_bytes: int) -> Any:
    return builder.add(address, _index(offset_bytes)) if offset_bytes else address


def _load(builder: Any, address: Any, offset_bytes: int, kind: Any = _VECTOR) -> Any:
    load = builder.load(builder.inttoptr(_at(builder, address, offset_bytes), kind.as_pointer()))
    load.align = 8 if kind is _I64 else 4
    return load


def _store(builder: Any, value: Any, address: Any, offset_bytes: int) -> None:
    store = builder.store(value, builder.inttoptr(_at(builder, address, offset_bytes), value.type.as_pointer()))
    store.align = 4
