"""The Triton kernel of normal_kl.py."""

# mypy: disable-error-code="no-untyped-def"

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

LANES = 512  # weights that share a Philox call lie so far apart
DEGREE = 8  # of the longest polynomial
ROUNDS = tl.constexpr(7)  # of Philox; passes the statistical batteries, a third cheaper than ten


def launch(
    loc: Tensor,
    log_scale: Tensor,
    seed: Tensor,
    mean: float,
    std: float,
    num_draws: int,
    polynomial: list[float],
) -> Tensor:
    """`normal_kl_` by the kernel, which sums the value without its constant in parts; gradients are written over
    contiguous `loc` and `log_scale`."""
    many = num_draws > 1
    share = 2 if many else 4  # weights of a Philox call: z and χ², or z alone
    programs = triton.cdiv(loc.numel(), share * LANES)
    parts = torch.empty(programs, dtype=torch.float32, device=loc.device)
    coefficients = [c / num_draws for c in polynomial]  # of v = χ²/M
    coefficients += [0.0] * (DEGREE + 1 - len(coefficients))
    with torch.cuda.device_of(loc):
        _kernel[(programs,)](
            loc,
            log_scale,
            parts,
            seed,
            loc.numel(),
            mean,
            1 / std**2,
            1 / math.sqrt(num_draws),
            *coefficients,
            MANY=many,
            LANES=LANES,
        )
    return (parts.sum(dtype=torch.float64) + loc.numel() * (math.log(std) - 0.5)).to(loc.dtype)


@triton.jit
def _normals(a, b):
    """Two independent normal numbers of two random words (Box–Muller); a third of tl.randn4x's instructions.

    The direction is uniform within an eighth of a turn of an axis, by series; the two lowest bits choose the axis.
    """
    u = (a.to(tl.uint32, bitcast=True).to(tl.float32) + 1.0) * 2.0**-32  # in (0, 1]
    radius = tl.sqrt(-2.0 * tl.log(u))
    radius = tl.where((b & 1) == 0, radius, -radius)
    angle = b.to(tl.int32, bitcast=True).to(tl.float32) * (3.141592653589793 / 4 * 2.0**-31)
    x = angle * angle
    sine = angle * (1.0 - x * (1 / 6 - x * (1 / 120 - x * (1 / 5040 - x * (1 / 362880)))))
    cosine = 1.0 - x * (1 / 2 - x * (1 / 24 - x * (1 / 720 - x * (1 / 40320))))
    flat = (b & 2) == 0
    return radius * tl.where(flat, cosine, sine), radius * tl.where(flat, sine, cosine)


@triton.jit
def _kernel(
    loc,
    log_scale,
    parts,
    seed,
    numel,
    mean,
    precision,
    inverse_root,
    c0,
    c1,
    c2,
    c3,
    c4,
    c5,
    c6,
    c7,
    c8,
    MANY: tl.constexpr,
    LANES: tl.constexpr,
):
    lane = tl.arange(0, LANES)
    program = tl.program_id(0)
    # a counter for every lane of every program: none is used twice
    b0, b1, b2, b3 = tl.randint4x(tl.load(seed), (program * LANES + lane).to(tl.uint32), ROUNDS)
    n0, n2 = _normals(b0, b1)
    n1, n3 = _normals(b2, b3)
    share: tl.constexpr = 2 if MANY else 4
    place = program.to(tl.int64) * (share * LANES) + lane
    total = tl.zeros((LANES,), tl.float32)
    for i in tl.static_range(share):
        if i == 0:
            z = n0
        elif i == 1:
            z = n1
        elif i == 2:
            z = n2
        else:
            z = n3
        inside = place < numel
        log_sigma = tl.load(log_scale + place, mask=inside, other=0.0)
        sigma = tl.exp(log_sigma)
        shift = sigma * (z * inverse_root)
        y = tl.load(loc + place, mask=inside, other=0.0) - mean + shift
        second = y * shift
        square = y * y
        if MANY:
            e = n2 if i == 0 else n3
            v = c0 + e * (c1 + e * (c2 + e * (c3 + e * (c4 + e * (c5 + e * (c6 + e * (c7 + e * c8)))))))
            spread = sigma * sigma * v
            second += spread
            square += spread
        tl.store(loc + place, y * precision, mask=inside)
        tl.store(log_scale + place, second * precision - 1.0, mask=inside)
        total += tl.where(inside, 0.5 * precision * square - log_sigma, 0.0)
        place += LANES
    tl.store(parts + program, tl.sum(total))
