"""Quantizers for Q4_K, Q5_K, Q6_K and IQ4_XS, which the `gguf` package reads but cannot write.

A super-block holds 256 values in sub-blocks of 32 (Q6_K: 16). Scales are searched: from several
roundings of a sub-block the one is kept whose scale, fitted by weighted least squares, errs
least. Then the sub-blocks' scales are rounded to 6 or 8 bits, the values once more under what is
left of them, and last the super-block's own scales are fitted. The weight of a value x is
rms + |x|: errors of large values cost more.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import gguf
import numpy as np
import numpy.typing as npt
from gguf.constants import GGMLQuantizationType

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int32]

BLOCK = 256
LARGEST_HALF = 65504.0
BLOCKS_AT_ONCE = 2048  # 2 MiB of float32: a candidate's arrays stay in the cache

CODEBOOK = np.array(gguf.quants.IQ4_NL.kvalues, np.float32)
_BORDERS = (CODEBOOK[1:] + CODEBOOK[:-1]) / 2


def quantize(values: Floats, kind: GGMLQuantizationType) -> Bytes:
    """Encode float32 [..., n] as bytes [..., n / 256 · bytes per block].

    Raises ValueError when n is not a multiple of 256 or a value is not finite.
    """
    if values.shape[-1] % BLOCK:
        raise ValueError(f"Rows of {values.shape[-1]} values are no multiple of {BLOCK}.")
    if not np.isfinite(values).all():
        raise ValueError("Not all values are finite: nothing was quantized.")
    blocks = np.ascontiguousarray(values, np.float32).reshape(-1, BLOCK)
    parts = [blocks[i : i + BLOCKS_AT_ONCE] for i in range(0, len(blocks), BLOCKS_AT_ONCE)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        encoded = np.concatenate(list(pool.map(_ENCODERS[kind], parts)))
    return encoded.reshape(*values.shape[:-1], -1)


def _weights(x: Floats) -> Floats:
    rms = np.sqrt(np.mean(x * x, axis=-1, keepdims=True, dtype=np.float64)).astype(np.float32)
    return np.abs(x) + rms


def _half(x: Floats) -> Floats:
    """Rounded to half precision and back; what is too large becomes the largest."""
    clipped = np.clip(x, -LARGEST_HALF, LARGEST_HALF)
    return clipped.astype(np.float16).astype(np.float32)


def _ratio(over: Floats | np.float32, under: Floats) -> Floats:
    """over / under, 0 where that is not finite."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found = over / under
    return np.where(np.isfinite(found), found, np.float32(0)).astype(np.float32)


def _normalized(blocks: Floats) -> tuple[Floats, Floats]:
    """Blocks divided by their largest size, so that no square overflows, and that size."""
    size = np.abs(blocks).max(axis=-1)
    return _ratio(blocks, size[:, None]), size


# -- Q4_K and Q5_K: x = d·s·q − dmin·m, s and m of 6 bits per 32 values, q of 4 or 5 -------------


def _encode_affine(blocks: Floats, bits: int) -> Bytes:
    scaled, size = _normalized(blocks)
    x = scaled.reshape(-1, 8, 32)
    w = _weights(x)
    top = (1 << bits) - 1
    scale, low = _fit_affine(x, w, top)
    d, dmin = scale.max(axis=1) / 63, low.max(axis=1) / 63
    s = np.clip(np.rint(_ratio(scale, d[:, None])), 0, 63).astype(np.float32)
    m = np.clip(np.rint(_ratio(low, dmin[:, None])), 0, 63).astype(np.float32)
    d, dmin = _rounded_scales(d, dmin, size)
    q = _round_affine(x, d, dmin, s, m, top)
    d, dmin = _rounded_scales(*_refit_affine(x, w, q, s, m, d, dmin), size)
    q = _round_affine(x, d, dmin, s, m, top)
    real = np.stack((_half(d * size), _half(dmin * size)), axis=1).astype(np.float16)
    return _pack_affine(real, s.astype(np.uint8), m.astype(np.uint8), q.astype(np.uint8), bits)


def _rounded_scales(d: Floats, dmin: Floats, size: Floats) -> tuple[Floats, Floats]:
    """Scales of normalized blocks, such that those of the real ones are half-precision."""
    return _ratio(_half(d * size), size), _ratio(_half(dmin * size), size)


def _fit_affine(x: Floats, w: Floats, top: int) -> tuple[Floats, Floats]:
    """Scale and size of the (negative or zero) minimum for each sub-block."""
    low = np.minimum(x.min(axis=-1), 0)
    span = x.max(axis=-1) - low
    best = np.full(span.shape, np.inf, np.float32)
    best_scale, best_low = np.zeros_like(span), np.zeros_like(span)
    for extra in np.linspace(-1.5, 1.0, 14):
        inverse = _ratio(np.float32(top + extra), span)
        q = np.clip(np.rint((x - low[..., None]) * inverse[..., None]), 0, top)
        scale, offset = _least_squares(x, w, q)
        error = (w * (scale[..., None] * q - offset[..., None] - x) ** 2).sum(axis=-1)
        better = error < best
        best = np.where(better, error, best)
        best_scale = np.where(better, scale, best_scale)
        best_low = np.where(better, offset, best_low)
    return best_scale, best_low


def _least_squares(x: Floats, w: Floats, q: Floats) -> tuple[Floats, Floats]:
    """The s ≥ 0 and m ≥ 0 for which s·q − m is nearest to x."""
    sw, sq, sqq = w.sum(-1), (w * q).sum(-1), (w * q * q).sum(-1)
    sx, sxq = (w * x).sum(-1), (w * x * q).sum(-1)
    det = sw * sqq - sq * sq
    scale = _ratio(sw * sxq - sx * sq, det)
    low = _ratio(sq * sxq - sqq * sx, det)
    unfit = (low < 0) | (det <= 0)
    scale = np.maximum(np.where(unfit, _ratio(sxq, sqq), scale), 0)
    low = np.where(unfit, 0, low)
    # All values alike and below zero: their minimum says everything.
    low = np.where(sqq == 0, np.maximum(-_ratio(sx, sw), 0), low)
    return scale.astype(np.float32), low.astype(np.float32)


def _round_affine(x: Floats, d: Floats, dmin: Floats, s: Floats, m: Floats, top: int) -> Floats:
    shifted = x + (dmin[:, None] * m)[..., None]
    return np.clip(np.rint(_ratio(shifted, (d[:, None] * s)[..., None])), 0, top)


def _refit_affine(
    x: Floats, w: Floats, q: Floats, s: Floats, m: Floats, d: Floats, dmin: Floats
) -> tuple[Floats, Floats]:
    """d and dmin nearest to the whole block; the old ones where the fit has no answer."""
    a, b = (s[..., None] * q), np.broadcast_to(m[..., None], q.shape)
    aa, bb, ab = (w * a * a).sum((1, 2)), (w * b * b).sum((1, 2)), (w * a * b).sum((1, 2))
    xa, xb = (w * x * a).sum((1, 2)), (w * x * b).sum((1, 2))
    det = aa * bb - ab * ab
    fresh = _ratio(xa * bb - xb * ab, det)
    fresh_min = _ratio(xa * ab - xb * aa, det)
    usable = (fresh > 0) & (fresh_min > 0)
    return np.where(usable, fresh, d), np.where(usable, fresh_min, dmin)


def _pack_affine(halves: npt.NDArray[np.float16], s: Bytes, m: Bytes, q: Bytes, bits: int) -> Bytes:
    first = s[:, :4] | (s[:, 4:] >> 4) << 6
    second = m[:, :4] | (m[:, 4:] >> 4) << 6
    third = (s[:, 4:] & 15) | (m[:, 4:] & 15) << 4
    pairs = q.reshape(-1, 4, 2, 32)
    low = (pairs[:, :, 0] & 15) | (pairs[:, :, 1] & 15) << 4
    parts = [halves.view(np.uint8), first, second, third]
    if bits == 5:
        place = np.arange(8, dtype=np.uint8)[:, None]
        parts.append(np.bitwise_or.reduce((q.reshape(-1, 8, 32) >> 4) << place, axis=1))
    parts.append(low.reshape(len(q), -1))
    return np.concatenate(parts, axis=1)


# -- Q6_K and IQ4_XS: x = d·s·value, s signed; the value is q − 32 or stands in a codebook -------


def _fit_scaled(x: Floats, starts: Iterator[Floats], nearest: Callable[[Floats], Floats]) -> Floats:
    """For each sub-block the scale that errs least, of all that `starts` leads to.

    `starts` gives inverse scales; `nearest` rounds to values that the format has.
    """
    w = _weights(x)
    best = np.full(x.shape[:-1], np.inf, np.float32)
    found = np.zeros_like(best)
    for inverse in starts:
        value = nearest(x * inverse[..., None])
        scale = _ratio((w * x * value).sum(-1), (w * value * value).sum(-1))
        error = (w * (scale[..., None] * value - x) ** 2).sum(-1)
        found = np.where(error < best, scale, found)
        best = np.minimum(best, error)
    return found


def _signed_peak(x: Floats) -> Floats:
    place = np.abs(x).argmax(axis=-1)[..., None]
    return np.take_along_axis(x, place, axis=-1)[..., 0]


def _scaled(
    blocks: Floats,
    sub: int,
    limit: int,
    ends: npt.NDArray[np.float64],
    nearest: Callable[[Floats], Floats],
) -> tuple[Floats, Floats, Floats]:
    """d as half precision [B], signed integer scales [B, 256 / sub], values [B, 256 / sub, sub].

    Scales lie in −limit … limit − 1. `ends` are what a sub-block's largest value may become.
    """
    scaled, size = _normalized(blocks)
    x = scaled.reshape(len(blocks), -1, sub)
    peak = _signed_peak(x)
    scale = _fit_scaled(x, (_ratio(np.float32(end), peak) for end in ends), nearest)
    d = _signed_peak(scale) / -np.float32(limit)
    s = np.clip(np.rint(_ratio(scale, d[:, None])), -limit, limit - 1)
    d = _ratio(_half(d * size), size)
    value = nearest(_ratio(x, (d[:, None] * s)[..., None]))
    w, step = _weights(x), s[..., None] * value
    fresh = _ratio((w * x * step).sum((1, 2)), (w * step * step).sum((1, 2)))
    d = _ratio(_half(fresh * size), size)
    value = nearest(_ratio(x, (d[:, None] * s)[..., None]))
    return _half(d * size), s, value


def _encode_q6_k(blocks: Floats) -> Bytes:
    def nearest(x: Floats) -> Floats:
        return np.clip(np.rint(x), -32, 31)

    ends = np.concatenate((np.linspace(-34, -29.5, 10), np.linspace(30, 33, 6)))
    d, s, value = _scaled(blocks, 16, 128, ends, nearest)
    q = (value.reshape(-1, 2, 4, 32) + 32).astype(np.uint8)
    low = np.concatenate((q[:, :, 0] & 15 | q[:, :, 2] << 4, q[:, :, 1] & 15 | q[:, :, 3] << 4), -1)
    high = q[:, :, 0] >> 4 | q[:, :, 1] >> 4 << 2 | q[:, :, 2] >> 4 << 4 | q[:, :, 3] >> 4 << 6
    halves = d.astype(np.float16)[:, None].view(np.uint8)
    scales = s.astype(np.int8).view(np.uint8)
    return np.concatenate(
        (low.reshape(len(d), -1), high.reshape(len(d), -1), scales, halves), axis=1
    )


def _encode_iq4_xs(blocks: Floats) -> Bytes:
    def nearest(x: Floats) -> Floats:
        return CODEBOOK[np.searchsorted(_BORDERS, x)]

    ends = np.concatenate((np.linspace(-136, -108, 12), np.linspace(100, 120, 8)))
    d, s, value = _scaled(blocks, 32, 32, ends, nearest)
    q = np.searchsorted(CODEBOOK, value).astype(np.uint8).reshape(-1, 8, 2, 16)
    ls = (s + 32).astype(np.uint16)
    high = np.bitwise_or.reduce((ls >> 4) << (2 * np.arange(8, dtype=np.uint16)), axis=1)
    low = (ls & 15).astype(np.uint8).reshape(-1, 4, 2)
    return np.concatenate(
        (
            d.astype(np.float16)[:, None].view(np.uint8),
            high.astype(np.uint16)[:, None].view(np.uint8),
            low[..., 0] | low[..., 1] << 4,
            (q[:, :, 0] | q[:, :, 1] << 4).reshape(len(d), -1),
        ),
        axis=1,
    )


_ENCODERS: dict[GGMLQuantizationType, Callable[[Floats], Bytes]] = {
    GGMLQuantizationType.Q4_K: partial(_encode_affine, bits=4),
    GGMLQuantizationType.Q5_K: partial(_encode_affine, bits=5),
    GGMLQuantizationType.Q6_K: _encode_q6_k,
    GGMLQuantizationType.IQ4_XS: _encode_iq4_xs,
}
