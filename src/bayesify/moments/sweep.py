"""The covariance of a network's outputs, by one adjoint sweep per output through the network of means.

The entries of an activation share the noise of the weights: all positions of a convolution, all tokens, all units
behind a layer. Variances by entry leave that out, and on trained networks it is most of the variance. So a pass notes
where noise enters and how much (tape.py), and the derivatives δ of the outputs' means by the means there, variances
held constant, carry it to the outputs together:

    Cov_cd = Σ over weights of Σ_kl σ²_kl A_ckl A_dkl,  A = Σ over uses of δ x                      shared noise
           + Σ over activations of Σ_i δ_ci δ_di r_i                                               noise by entry

x is what the weight meets, with its own noise: ±√((E x)² + Var x); r is what an activation adds to what linear
propagation hands on and other positions do not share, half of Var y − (E f′)² Var x (tape.py).
"""

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bayesify.execution import compiling, exporting
from bayesify.moments import opposite
from bayesify.moments.layouts import Unknown, find_layouts
from bayesify.moments.shared_noise import for_seeds, weighted_pairs
from bayesify.moments.standin import replace
from bayesify.moments.values import Moments, Top

MOST = 100  # outputs of an example that are swept one by one
TOP = 16  # of more than that, those with the largest means
PROBES = 8  # combinations of the others


def covariance(output: Moments) -> Tensor:
    """(batch, n, n) of the n numbers of each example in `output`, which has its trace with it."""
    n = output.mean[0].numel()
    unit = torch.eye(n, dtype=output.mean.dtype, device=output.mean.device)
    return gram(output, unit.view(n, 1, *output.mean.shape[1:]).expand(n, *output.mean.shape))


def covariance_of_top(output: Moments) -> Moments:
    """`output` (batch, n) of many numbers with the covariance of the largest ones, and variances of the others whose
    sum is right: those of one pass times tr Cov ÷ their sum, where E uᵀ Cov u = tr Cov over random signs u."""
    mean, var = output.mean.detach(), output.var.detach()
    indices = mean.topk(TOP, 1).indices
    largest = torch.zeros_like(mean).scatter(1, indices, 1.0)
    each = torch.zeros(mean.shape[0], TOP, mean.shape[1], dtype=mean.dtype, device=mean.device)
    seeds = each.scatter(2, indices[:, :, None], 1.0).transpose(0, 1)
    probes = _signs(mean)[:, None] * (1 - largest)
    found = gram(output, torch.cat([seeds, probes]))
    cov, trace = found[:, :TOP, :TOP], found.diagonal(dim1=1, dim2=2)[:, TOP:].mean(1)
    others = (var * (1 - largest)).sum(1).clamp_min(torch.finfo(var.dtype).tiny)
    var = output.var * (trace / others)[:, None]
    var = var.scatter(1, indices, cov.diagonal(dim1=1, dim2=2).to(var.dtype))
    return Moments(output.mean, var, top=Top(indices, cov))


def _signs(like: Tensor) -> Tensor:
    """(PROBES, n) of a fixed hash: the same in every pass and in compiled code, so that predictions do not change."""
    place = torch.arange(PROBES * like.shape[1], device=like.device)
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
        place = ((place ^ (place >> shift)) * factor) & 0xFFFFFFFF
    return ((place & 1) * 2 - 1).to(like.dtype).view(PROBES, -1)


def gram(output: Moments, seeds: Tensor) -> Tensor:
    """seeds (s, batch, …) -> (batch, s, s): uᵀ Cov u′ of every pair of them."""
    assert output.trace is not None
    if output.trace.tape.eager and compiling():  # after a graph break, whose other side has the graph
        return torch.compiler.disable(_gram)(output, seeds)
    return _gram(output, seeds)


def _gram(output: Moments, seeds: Tensor) -> Tensor:
    assert output.trace is not None
    tape, end = output.trace
    places = [*(mean for mean, _ in tape.noises), *(use.mean for uses in tape.uses for use in uses)]
    if not places or not end.requires_grad:  # nothing random came this way
        return seeds.new_zeros(seeds.shape[1], len(seeds), len(seeds))
    with torch.enable_grad():
        layouts = find_layouts(end, places, tape.batch, tape.layouts)
        found = _derivatives(end, places, seeds.to(end.dtype), tape.differentiable)
        rows = [at.of_seeds(delta) for delta, at in zip(found, layouts, strict=True)]
        total = seeds.new_zeros(seeds.shape[1], len(seeds), len(seeds))
        start = len(tape.noises)
        for delta, layout, (_, var) in zip(rows, layouts, tape.noises, strict=False):
            total = total + _of_entries(delta, layout.of_values(for_seeds(var, delta)))
        for uses in tape.uses:
            total = total + uses[0].gram_of(list(zip(uses, rows[start:], layouts[start:], strict=False)))
            start += len(uses)
    return total if tape.differentiable else total.detach()


def _derivatives(end: Tensor, places: Any, seeds: Tensor, again: bool) -> Any:
    """δ of every seed, (seeds, …) each."""
    if not compiling() and any(type(p.grad_fn).__name__.startswith("CompiledFunction") for p in places):
        raise RuntimeError(
            "the network was compiled in pieces, and derivatives by what is inside of one cannot be taken: compile "
            "it without graph breaks (torch.compile(..., fullgraph=True) shows where they are), leave it as it is, or "
            "use bf.DensityPropagation(covariance='diagonal', logits='bound')"
        )
    one = partial(
        torch.autograd.grad, end, places, retain_graph=True, create_graph=again, materialize_grads=True
    )
    if len(seeds) == 1:
        return [delta[None] for delta in one(seeds[0])]
    if exporting():  # vmap's rules fix the size of the batch
        return [torch.stack(deltas) for deltas in zip(*map(one, seeds), strict=True)]
    # not is_grads_batched, which takes convolutions seed by seed
    if compiling():
        return torch.func.vmap(one)(seeds)
    with warnings.catch_warnings():  # of operations that vmap takes one by one
        warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
        return torch.func.vmap(one)(seeds)


def _of_entries(delta: Tensor, var: Tensor) -> Tensor:
    """Σ_i δ_si δ_ti r_i; delta (seeds, batch, …), var (batch, …)."""
    if delta.dim() == 5 and delta.device.type in opposite.PARALLEL and compiling():
        # channels last, as Inductor has them there
        delta, var = delta.movedim(2, -1), var.movedim(1, -1)
    delta = delta.reshape(*delta.shape[:2], -1).transpose(0, 1)  # (batch, seeds, n)
    return weighted_pairs(delta, var.reshape(var.shape[0], 1, -1))


def finished(output: Any) -> Any:
    """`output` with the covariances of what has a trace: of more than MOST numbers in a row with those of the largest,
    of more in other shapes with their variances alone."""
    return replace(output, Moments, _finished)


def _finished(output: Moments) -> Moments:
    if output.trace is None:
        return output
    tape = output.trace.tape
    mean = output.mean if tape.differentiable else output.mean.detach()
    if not mean.dim() or mean.shape[0] != tape.batch:
        return Moments(mean, output.var)
    try:
        if mean[0].numel() <= MOST:
            cov = covariance(output)
            var = cov.flatten(1)[:, :: cov.shape[-1] + 1]  # the diagonal
            return Moments(mean, var.reshape(mean.shape), cov=cov)
        if mean.dim() == 2:
            found = covariance_of_top(output)
            return Moments(mean, found.var, top=found.top)
        raise Unknown(
            f"the covariance of the outputs is not taken of {mean[0].numel():,} numbers for each example. On a "
            f"trained network bf.diagnostics.moment_check(model, loader) says how wrong variances are without it, and "
            f"bf.moments.fit_gains(model, loader) corrects them"
        )
    except Unknown as unknown:
        tell_once(output, unknown)
        return Moments(mean, output.var)


def tell_once(output: Any, unknown: Unknown) -> None:
    """That outputs of this kind have the variances of one pass, and why."""
    heads = output if type(output) is tuple else (output,)
    told = next(head.trace.tape.layouts for head in heads if head.trace is not None)
    if not compiling() and not told.get(str(unknown)):
        told[str(unknown)] = True
        warnings.warn(
            f"{unknown}. Variances are those of one pass, as with covariance='diagonal'", stacklevel=2
        )
