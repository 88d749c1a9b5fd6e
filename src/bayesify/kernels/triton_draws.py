"""The Triton kernel of draws.py."""

# mypy: disable-error-code="no-untyped-def"

import torch
import triton
import triton.language as tl
from torch import Tensor

ROUNDS = tl.constexpr(7)  # of Philox; passes the statistical batteries, a third cheaper than ten


def launch(loc: Tensor, log_scale: Tensor, n: int, seed: Tensor, block: int) -> Tensor:
    loc, log_scale = loc.contiguous(), log_scale.contiguous()
    out = torch.empty((n, *loc.shape), dtype=loc.dtype, device=loc.device)
    numel = loc.numel()
    grid = (triton.cdiv(numel, block), triton.cdiv(n, 4))
    _kernel[grid](out, loc, log_scale, seed, numel, n, BLOCK=block)
    return out


@triton.jit
def _kernel(out, loc, log_scale, seed, numel, n, BLOCK: tl.constexpr):
    element = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    draw = tl.program_id(1) * 4
    inside = element < numel
    mean = tl.load(loc + element, mask=inside).to(tl.float32)
    std = tl.exp(tl.load(log_scale + element, mask=inside).to(tl.float32))
    # one stream of random numbers per four draws: the seed moves, the counter is the element
    a, b, c, d = tl.randn4x(tl.load(seed) + tl.program_id(1), element, ROUNDS)
    row = out + draw.to(tl.int64) * numel + element
    tl.store(row, (mean + std * a).to(out.dtype.element_ty), mask=inside)
    tl.store(row + numel, (mean + std * b).to(out.dtype.element_ty), mask=inside & (draw + 1 < n))
    tl.store(row + 2 * numel, (mean + std * c).to(out.dtype.element_ty), mask=inside & (draw + 2 < n))
    tl.store(row + 3 * numel, (mean + std * d).to(out.dtype.element_ty), mask=inside & (draw + 3 < n))
