"""Full covariance propagation (VDP, the method VDP++ simplifies): for small networks.

A random activation is a `Gaussian`: mean (batch, *shape) and covariance (batch, n, n). Weights are independent of each
other, with a variance each. Non-linear functions are taken to first order, Cov f(x) = J Cov x Jᵀ.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.execution import exporting
from bayesify.moments.registry import FORMS, RULES, rule, spelled
from bayesify.moments.rules.activation import scaled
from bayesify.moments.rules.patches import patches, patches_of_covariance
from bayesify.moments.rules.pool import _indexed
from bayesify.moments.values import Gaussian, Moments, parts

MAX_GIGABYTES = 4.0  # the largest covariance of one layer; raise it where there is memory for more


def check_size(batch: int, n: int, like: Tensor) -> None:
    """A covariance that takes more than MAX_GIGABYTES raises."""
    if exporting():  # the batch size is not known yet
        return
    gigabytes = batch * n * n * like.element_size() / 2**30
    if gigabytes > MAX_GIGABYTES:
        raise MemoryError(
            f"full covariance of a layer with {n} outputs at batch size {batch} takes {gigabytes:.1f} GB, the limit "
            f"is {MAX_GIGABYTES:g} GB: use a smaller batch or covariance='diagonal', or raise "
            f"bayesify.moments.rules.covariance.MAX_GIGABYTES"
        )


def independent(x: Moments) -> Gaussian:
    """Noise of an input, independent from number to number."""
    var = x.var.flatten(1)  # (batch, n)
    check_size(var.shape[0], var.shape[1], var)
    return Gaussian(x.mean, var.diag_embed())


def both_sides(operation: Any, x: Gaussian) -> Tensor:
    """M Cov Mᵀ for the linear map M = operation, applied to the rows and then to the columns."""
    shape = x.mean.shape[1:]
    half = operation(x.cov.reshape(-1, *shape)).flatten(1).unflatten(0, x.cov.shape[:2])  # (batch, n, m)
    check_size(half.shape[0], half.shape[2], half)
    whole = operation(half.mT.reshape(-1, *shape)).flatten(1)
    return whole.unflatten(0, (half.shape[0], half.shape[2]))  # (batch, m, m)


def _split(x: Any) -> tuple[Tensor, Tensor | None]:
    return (x.mean, x.cov) if isinstance(x, Gaussian) else (x, None)


@rule(F.linear, form="full")
def linear(x: Any, weight: Any, bias: Any = None) -> Gaussian:
    """Cov y = M Cov x Mᵀ + diag_n(Σ_j Var w_nj ((E x_j)² + Var x_j) + Var b_n)."""
    (mean, cov), (w, w_var), (b, b_var) = _split(x), parts(weight), parts(bias)
    if mean.dim() != 2:
        raise NotImplementedError(
            f"full covariance takes inputs (batch, features) to linear layers, not {tuple(mean.shape)}"
        )
    y = F.linear(mean, w, b)
    check_size(y.shape[0], y.shape[1], y)
    diagonal = torch.zeros_like(y)
    if w_var is not None:
        second = mean.square() if cov is None else mean.square() + x.var
        diagonal = F.linear(second, w_var)
    if b_var is not None:
        diagonal = diagonal + b_var
    own = diagonal.diag_embed()
    return Gaussian(y, own if cov is None else own + w @ cov @ w.mT)


def convolution(operation: Any, x: Any, weight: Any, bias: Any = None, *args: Any, **kwargs: Any) -> Gaussian:
    """For positions i, j of kernel k:  C_ij = Σ_l Var w_kl (E x_il E x_jl + Cov(x_il, x_jl)) + Var b_k, on top of
    M Cov x Mᵀ; between kernels the latter alone. l runs over the entries of a patch."""
    (mean, cov), (w, w_var), (b, b_var) = _split(x), parts(weight), parts(bias)
    y = operation(mean, w, b, *args, **kwargs)
    batch, kernels = y.shape[:2]
    check_size(batch, y[0].numel(), y)
    shared = y.new_zeros(batch, kernels, y[0, 0].numel(), y[0, 0].numel())
    if w_var is not None:
        geometry = _geometry(*args, **kwargs)
        rows = patches(mean, w.shape, geometry)  # (batch, groups, positions, patch)
        s = w_var.flatten(1).unflatten(0, (rows.shape[1], -1))  # (groups, kernels per group, patch)
        shared = torch.einsum("bgip,gkp,bgjp->bgkij", rows, s, rows)
        if cov is not None:
            shared = shared + patches_of_covariance(x.mean.shape, cov, s, w.shape, geometry)
        shared = shared.flatten(1, 2)
    if b_var is not None:
        shared = shared + b_var[:, None, None]
    own = _block_diagonal(shared)
    if cov is not None:
        own = own + both_sides(lambda t: operation(t, w, None, *args, **kwargs), x)
    return Gaussian(y, own)


def _geometry(
    stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> tuple[Any, Any, Any, int]:
    """A convolution's arguments behind the bias, with torch's defaults."""
    return stride, padding, dilation, groups


def _block_diagonal(blocks: Tensor) -> Tensor:
    """(batch, kernels, positions, positions) -> (batch, n, n), zero between kernels."""
    whole = blocks.permute(0, 2, 3, 1).diag_embed()  # (batch, i, j, kernel, kernel)
    return whole.permute(0, 3, 1, 4, 2).flatten(3, 4).flatten(1, 2)


for _operation in (F.conv1d, F.conv2d, F.conv3d):
    FORMS["full"][_operation] = partial(convolution, _operation)


FUNCTIONS = "relu relu_ leaky_relu elu celu selu gelu silu mish softplus sigmoid tanh hardswish"
for _operation in spelled(FUNCTIONS):
    rule(_operation, form="full")(RULES[_operation])  # they end in `scaled`


def max_pool(with_indices: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """Rows and columns at the places of the largest means."""
    kwargs.pop("return_indices", None)
    mean, index = with_indices(x.mean, *args, **kwargs)
    channels, places = x.mean.shape[1], x.mean[0, 0].numel()
    start = torch.arange(channels, device=mean.device).view(1, -1, 1) * places
    flat = (index.flatten(2) + start).flatten(1)  # (batch, m) places in an example
    n, m = x.cov.shape[1], flat.shape[1]
    rows = x.cov.gather(1, flat[:, :, None].expand(-1, m, n))
    return Gaussian(mean, rows.gather(2, flat[:, None, :].expand(-1, m, m)))


def averaged(operation: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """A linear map: M Cov Mᵀ."""
    mean = operation(x.mean, *args, **kwargs)
    return Gaussian(mean, both_sides(lambda t: operation(t, *args, **kwargs), x))


for _d in (1, 2, 3):
    for _name in (f"max_pool{_d}d", f"adaptive_max_pool{_d}d"):
        for _operation in spelled(_name):
            FORMS["full"][_operation] = partial(max_pool, _indexed(_name))
    for _name in (f"avg_pool{_d}d", f"adaptive_avg_pool{_d}d"):
        for _operation in spelled(_name):
            FORMS["full"][_operation] = partial(averaged, _operation)


@rule(F.batch_norm, form="full")
def batch_norm(
    x: Gaussian,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Gaussian:
    """Cov y = Cov x ∘ ggᵀ, g = γ/√(v + ε), v the variance the mean used; γ and β deterministic."""
    mean = F.batch_norm(x.mean, running_mean, running_var, weight, bias, training, momentum, eps)
    used = x.mean.var((0, *range(2, x.mean.dim())), correction=0) if training else running_var
    assert used is not None
    gain = (used + eps).rsqrt() if weight is None else weight * (used + eps).rsqrt()
    return scaled(mean, gain.view(1, -1, *(1,) * (mean.dim() - 2)).expand(mean.shape), x)


@rule(*spelled("softmax"), form="full")
def softmax(x: Gaussian, dim: int = -1, _stacklevel: int = 3, dtype: Any = None) -> Gaussian:
    """Cov p = J Cov x Jᵀ, J = diag p − ppᵀ, for outputs (batch, classes)."""
    if x.mean.dim() != 2 or dim not in (1, -1):
        raise NotImplementedError("full covariance has softmax over the classes of outputs (batch, classes)")
    p = x.mean.softmax(-1)
    jacobian = p.diag_embed() - p[:, :, None] * p[:, None, :]
    return Gaussian(p, jacobian @ x.cov @ jacobian.mT)


@rule(*spelled("dropout", "dropout1d", "dropout2d", "dropout3d"), form="full")
def dropout(x: Gaussian, p: float = 0.5, training: bool = True) -> Gaussian:
    """Masks are independent: the diagonal gains p/(1 − p) (Var x + (E x)²)."""
    if not training or p == 0:
        return x
    extra = p / (1 - p) * (x.var + x.mean.square())
    return Gaussian(x.mean, x.cov + extra.flatten(1).diag_embed())


def _reshaped(operation: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """The numbers of an example in another shape: their covariance is the same."""
    mean = operation(x.mean, *args, **kwargs)
    if mean.shape[:1] != x.mean.shape[:1]:
        raise NotImplementedError("full covariance keeps the batch dimension first")
    return Gaussian(mean, x.cov)


for _operation in spelled("flatten", "reshape", "view", "contiguous", "squeeze", "unsqueeze"):
    FORMS["full"][_operation] = partial(_reshaped, _operation)
