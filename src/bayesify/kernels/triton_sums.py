"""The Triton kernel of sums.py."""

# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS = 8192  # at least as many as a large GPU runs at once
ROUNDS = tl.constexpr(7)  # of Philox; passes the statistical batteries, a third cheaper than ten
TINY = tl.constexpr(2.0**-32)


def launch(
    law: str,
    like: Tensor,
    n: int,
    seed: Tensor,
    norms: Tensor | None,
    block: int,
    noise: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    numel = like.numel()
    blocks = triton.cdiv(numel, block)
    share = 4 * triton.cdiv(triton.cdiv(n, 4), min(triton.cdiv(n, 4), triton.cdiv(PROGRAMS, blocks)))
    splits = triton.cdiv(n, share)  # a small tensor's draws are shared out over several programs
    first = torch.empty((splits, numel), dtype=torch.float32, device=like.device)
    second = torch.empty_like(first)
    _kernel[(blocks, splits)](
        first,
        second,
        first if norms is None else norms,
        first if noise is None else noise.contiguous(),
        seed,
        numel,
        n,
        share,
        LAW=law,
        GIVEN=noise is not None,
        BLOCK=block,
        num_warps=1,
    )
    return first.sum(0).view(like.shape).to(like.dtype), second.sum(0).view(like.shape).to(like.dtype)


@triton.jit
def _two_sided(u, LAW: tl.constexpr):
    u = tl.minimum(tl.maximum(u, TINY), 1.0 - 6e-8)
    if LAW == "logistic":
        return tl.log(u) - tl.log(1.0 - u)
    low = tl.minimum(u, 1.0 - u)
    size = -tl.log(2.0 * low)
    return tl.where(u < 0.5, -size, size)


@triton.jit
def _radial(g, inside, norms, draw, stop, block):
    g = tl.where(inside, g, 0.0)
    blocks = tl.num_programs(0).to(tl.int64)
    wanted = tl.load(norms + blocks * draw + block, mask=draw < stop, other=0.0)
    return g * (wanted * tl.rsqrt(tl.sum(g * g)))


@triton.jit
def _given(noise, row, numel, element, inside):
    """One draw's numbers instead of the generator's; ½ where there are none."""
    place = (tl.zeros_like(element).to(tl.int64) + row) * numel + element
    return tl.load(noise + place, mask=inside, other=0.5).to(tl.float32)


@triton.jit
def _kernel(
    first,
    second,
    norms,
    noise,
    seed,
    numel,
    n,
    share,
    LAW: tl.constexpr,
    GIVEN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block = tl.program_id(0)
    split = tl.program_id(1)
    element = block * BLOCK + tl.arange(0, BLOCK)
    inside = element < numel
    stream = tl.load(seed)
    start = split * share
    stop = tl.minimum(n, start + share)
    sum1 = tl.zeros((BLOCK,), tl.float32)
    sum2 = tl.zeros((BLOCK,), tl.float32)
    if LAW == "horseshoe":
        for i in range(start, stop):
            if GIVEN:
                a = _given(noise, i, numel, element, inside)
                b = _given(noise, n + i, numel, element, inside)
                c = _given(noise, 2 * n + i, numel, element, inside)
            else:
                a, b, c, _ = tl.randn4x(stream + i, element, ROUNDS)
            x = a * tl.abs(b) / tl.maximum(tl.abs(c), 1e-20)  # |b/c| is half-Cauchy
            sum1 += x
            sum2 += x * x
    else:
        for i in range(start, stop, 4):
            if GIVEN:
                a = _given(noise, i, numel, element, inside)
                b = _given(noise, i + 1, numel, element, inside & (i + 1 < stop))
                c = _given(noise, i + 2, numel, element, inside & (i + 2 < stop))
                d = _given(noise, i + 3, numel, element, inside & (i + 3 < stop))
            elif LAW == "radial":
                a, b, c, d = tl.randn4x(stream + i, element, ROUNDS)
            else:
                a, b, c, d = tl.rand4x(stream + i, element, ROUNDS)
            if LAW == "radial":
                a = _radial(a, inside, norms, i, stop, block)
                b = _radial(b, inside, norms, i + 1, stop, block)
                c = _radial(c, inside, norms, i + 2, stop, block)
                d = _radial(d, inside, norms, i + 3, stop, block)
            else:
                a = _two_sided(a, LAW)
                b = tl.where(i + 1 < stop, _two_sided(b, LAW), 0.0)
                c = tl.where(i + 2 < stop, _two_sided(c, LAW), 0.0)
                d = tl.where(i + 3 < stop, _two_sided(d, LAW), 0.0)
            sum1 += (a + b) + (c + d)
            sum2 += (a * a + b * b) + (c * c + d * d)
    place = split.to(tl.int64) * numel + element
    tl.store(first + place, sum1, mask=inside)
    tl.store(second + place, sum2, mask=inside)
