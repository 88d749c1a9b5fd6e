"""The step of the samplers with momentum as one Triton kernel: every state is read once and written once.

The kernel runs over all parameters of a bucket at once. θ and the gradients stay where they are and are
reached through tables of addresses; momentum and thermostat are the vectors of the bucket. Noise is made
inside by Philox, a counter per coordinate and a key per (seed, step), so it does not depend on the launch.

A `capturable` step can be part of a CUDA graph: gradients, which lie elsewhere in every step, are joined to one
vector, and the number of the step (and lr, where it is a tensor) is read on the device.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from bayesify.kernels.normal_kl import TRITON
from bayesify.samplers.base import apart
from bayesify.samplers.bucket import Bucket

if TYPE_CHECKING:
    from bayesify.samplers.momentum import MomentumSampler

LANES = 512  # coordinates that share one Philox call make a program of 4 · LANES


def available(parameters: list[Tensor]) -> bool:
    """Contiguous float32 on CUDA, with triton installed."""
    return TRITON and all(p.is_cuda and p.dtype == torch.float32 and p.is_contiguous() for p in parameters)


class Tables:
    """Where tensors of these sizes lie: for every program its tensor, and its place in it and in the vector of all."""

    def __init__(self, sizes: Sequence[int], device: torch.device) -> None:
        owner, inside, place = [], [], []
        start = 0
        for index, size in enumerate(sizes):
            for offset in range(0, size, 4 * LANES):
                owner.append(index)
                inside.append(offset)
                place.append(start + offset)
            start += size
        columns = torch.tensor([owner, inside, place], dtype=torch.int64)
        self.programs = columns.t().contiguous().to(device)  # (programs, 3)
        self.sizes = torch.tensor(sizes, dtype=torch.int64, device=device)
        self.device = device
        self.tables: dict[tuple[int, ...], Tensor] = {}

    def addresses(self, tensors: list[Tensor]) -> Tensor:
        """The tensors' addresses on the device. The allocator gives out the same ones again and again."""
        key = tuple(t.data_ptr() for t in tensors)
        if key not in self.tables:
            if len(self.tables) >= 16:
                self.tables.clear()
            self.tables[key] = torch.tensor(key, dtype=torch.int64).to(self.device)
        return self.tables[key]


def fused_step(
    sampler: "MomentumSampler", bucket: Bucket, group: dict[str, Any], noise: list[Tensor] | None
) -> None:
    """One "fused" step of `bucket` on the device, in place."""
    from bayesify.samplers.kernel import sampler_kernel

    if bucket.tables is None:
        bucket.tables = Tables(bucket.sizes, bucket.device)
    tables = bucket.tables
    gradients = [p.grad.contiguous() for p in bucket.parameters]  # type: ignore[union-attr]
    momentum, thermostat = bucket.states["momentum"], bucket.states.get("thermostat")
    masses = bucket.states.get("mass")
    eta = momentum if noise is None else torch.cat([n.reshape(-1) for n in noise]).to(bucket.dtype)
    found, scale = sampler.found_inf, sampler.grad_scale
    h, c = group["lr"], group["max_speed"]
    if sampler.capturable:
        where, counter, step = torch.cat([g.view(-1) for g in gradients]), sampler.counter(bucket.device), 0
    else:
        where, counter, step = tables.addresses(gradients), momentum, sampler.steps
    with torch.cuda.device(bucket.device):
        sampler_kernel[(len(tables.programs),)](
            tables.programs,
            tables.sizes,
            tables.addresses(bucket.parameters),
            where,
            momentum,
            momentum if thermostat is None else thermostat,
            momentum if masses is None else masses,
            eta,
            momentum if found is None else found,
            momentum if scale is None else scale,
            counter,
            _key(sampler.seed, step),
            h if isinstance(h, Tensor) else float(h),
            float(group["mass"]),
            float(group["temperature"]),
            float(group["thermostat_rate"]),
            float(group["noise"]),
            0.0 if c is None else 1 / c,
            float(sampler.num_data),
            thermostated=thermostat is not None,
            adaptive=sampler.kernel == "adaptive",
            hyperbolic=c is not None,
            weighted=masses is not None,
            noisy=group["temperature"] > 0,
            given=noise is not None,
            skips=found is not None,
            scaled=scale is not None,
            capturable=sampler.capturable,
            steered=isinstance(h, Tensor),
            lanes=LANES,
        )


def _key(seed: int, step: int) -> int:
    """A 63-bit Philox key of its own for every step."""
    return ((apart(seed) & 0x7FFFFFFF) << 32) | (step & 0xFFFFFFFF)
