"""Full covariance propagation (VDP, the method VDP++ simplifies): for small networks.

A random activation is a `Gaussian`: mean (batch, *shape) and covariance (batch, n, n). Weights are independent of each
other, with a variance each. Activations with exact moments have them (form "full_exact"); between entries, and for all
other functions, Cov f(x) = G Cov x Gᵀ with G = E f′ or f′(E x).
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.execution import exporting
from bayesify.moments.missing import not_covered
from bayesify.moments.registry import FORMS, RULES, rule, spelled
from bayesify.moments.rules.activation import scaled
from bayesify.moments.rules.gates import GATES
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


def by_row(operation: Any, *args: Any, **kwargs: Any) -> Any:
    """A linear map of examples as one of rows (batch, k, *shape), k of them for each example."""
    return lambda rows: operation(rows.flatten(0, 1), *args, **kwargs).unflatten(0, rows.shape[:2])


def mapped(over: Any, x: Gaussian, columns: Tensor) -> Tensor:
    """M C for the linear map M = `over` of x and C (batch, n, k): (batch, m, k)."""
    rows = columns.mT.reshape(columns.shape[0], columns.shape[2], *x.mean.shape[1:])
    return over(rows).flatten(2).mT


def both_sides(over: Any, x: Gaussian) -> Tensor:
    """M Cov x Mᵀ: M of the rows and then of the columns."""
    half = mapped(over, x, x.cov)  # (batch, m, n)
    check_size(half.shape[0], half.shape[1], half)
    return mapped(over, x, half.mT)


def cross(x: Gaussian, y: Gaussian) -> Tensor | None:
    """Cov(x, y), (batch, n, m): through the maps that made the later one, Cov(M z + own, y) = M Cov(z, y). None
    where they have nothing in common. A weight's noise counts as new at each of its uses."""
    if x.cov is y.cov:
        return x.cov
    if x.depth < y.depth:
        found = cross(y, x)
        return None if found is None else found.mT
    known = ((parent, over, cross(parent, y)) for parent, over in x.parents)
    each = [mapped(over, parent, cov) for parent, over, cov in known if cov is not None]
    return torch.stack(each).sum(0) if len(each) > 1 else each[0] if each else None


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
    return Gaussian(y, own) if cov is None else _behind(x, y, by_row(F.linear, w), own)


def _behind(x: Gaussian, mean: Tensor, over: Any, own: Tensor | None = None) -> Gaussian:
    """M x with noise of its own: M Cov x Mᵀ + own."""
    cov = both_sides(over, x)
    return Gaussian.made(mean, cov if own is None else own + cov, (x, over))


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
    return (
        Gaussian(y, own) if cov is None else _behind(x, y, by_row(operation, w, None, *args, **kwargs), own)
    )


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


FUNCTIONS = """
    relu relu_ leaky_relu leaky_relu_ elu celu selu gelu silu mish softplus sigmoid tanh hardswish square exp
"""
for _operation in spelled(FUNCTIONS):
    rule(_operation, form="full")(RULES[_operation])  # they end in `scaled`
rule(*spelled("abs abs_ absolute __abs__"), form="full")(lambda x: scaled(x.mean.abs(), x.mean.sign(), x))


def gated(function: Any, otherwise: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """Cov y = E f′ E f′ᵀ ∘ Cov x (Price, the first term of the series in Cov x), Var y on the diagonal, exactly."""
    by_entry = Moments(x.mean, x.var)
    slope = GATES[function](by_entry, *args, **kwargs)
    if slope is None:
        return otherwise(x, *args, **kwargs)
    y = function(by_entry, *args, **kwargs)
    first = scaled(y.mean, slope, x)
    rest = (y.var - first.var).clamp_min(0)
    return first._replace(cov=first.cov + rest.flatten(1).diag_embed())


for _operation, _first in list(FORMS["full"].items()):
    if (_exact := FORMS["exact"].get(_operation)) in GATES:
        rule(_operation, form="full_exact")(partial(gated, _exact, _first))


@rule(*spelled("add add_ __add__ __radd__ __iadd__"), form="full")
def add(x: Any, y: Any, *, alpha: float = 1) -> Gaussian:
    """Cov(x + αy) = Cov x + α² Cov y + α (Cov(x, y) + Cov(y, x)): residual sums have what both come from."""
    mean = _split(x)[0] + alpha * _split(y)[0]
    random = [each for each in (x, y) if isinstance(each, Gaussian)]
    if any(each.mean.shape != mean.shape for each in random):
        raise NotImplementedError(
            not_covered(torch.add, "a random operand that is repeated, in full covariance")
        )
    if len(random) == 1:
        same = random[0] is x or alpha == 1
        return random[0]._replace(mean=mean) if same else scaled(mean, torch.full_like(mean, alpha), y)
    cov, both = x.cov + alpha**2 * y.cov, cross(x, y)
    if both is not None:
        cov = cov + alpha * (both + both.mT)
    return Gaussian.made(mean, cov, (x, lambda rows: rows), (y, lambda rows: alpha * rows))


@rule(*spelled("sub sub_ subtract __sub__ __isub__"), form="full")
def sub(x: Any, y: Any, *, alpha: float = 1) -> Gaussian:
    """x − α y."""
    return add(x, y, alpha=-alpha)


rule(*spelled("rsub __rsub__"), form="full")(lambda x, y: sub(y, x))


@rule(*spelled("mul mul_ multiply __mul__ __rmul__ __imul__"), form=("full", "full_exact"))
def mul(x: Any, y: Any, *, form: str) -> Gaussian:
    """By what is not random; x · x is the square."""
    if x is y:
        return FORMS[form][torch.square](x)
    if isinstance(y, Gaussian):
        x, y = y, x
    mean = x.mean * _split(y)[0]
    if isinstance(y, Gaussian) or mean.shape != x.mean.shape:
        raise NotImplementedError(not_covered(torch.mul, "two random factors, in full covariance"))
    return scaled(mean, torch.ones_like(mean) * y, x)


def max_pool(with_indices: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """Rows and columns at the places of the largest means."""
    kwargs.pop("return_indices", None)
    mean, index = with_indices(x.mean, *args, **kwargs)
    channels, places = x.mean.shape[1], x.mean[0, 0].numel()
    start = torch.arange(channels, device=mean.device).view(1, -1, 1) * places
    flat = (index.flatten(2) + start).flatten(1)  # (batch, m) places in an example
    return _behind(
        x, mean, lambda rows: rows.flatten(2).gather(2, flat[:, None].expand(-1, rows.shape[1], -1))
    )


def averaged(operation: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """A linear map: M Cov Mᵀ."""
    return _behind(x, operation(x.mean, *args, **kwargs), by_row(operation, *args, **kwargs))


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
    return _behind(x, p, lambda rows: rows @ jacobian)


@rule(*spelled("dropout", "dropout1d", "dropout2d", "dropout3d"), form="full")
def dropout(x: Gaussian, p: float = 0.5, training: bool = True) -> Gaussian:
    """Masks are independent: the diagonal gains p/(1 − p) (Var x + (E x)²)."""
    if not training or p == 0:
        return x
    extra = p / (1 - p) * (x.var + x.mean.square())
    return Gaussian.made(x.mean, x.cov + extra.flatten(1).diag_embed(), (x, lambda rows: rows))


def _reshaped(operation: Any, x: Gaussian, *args: Any, **kwargs: Any) -> Gaussian:
    """The numbers of an example in another shape: their covariance is the same."""
    mean = operation(x.mean, *args, **kwargs)
    if mean.shape[:1] != x.mean.shape[:1]:
        raise NotImplementedError("full covariance keeps the batch dimension first")
    return x._replace(mean=mean)


for _operation in spelled("flatten", "reshape", "view", "contiguous", "squeeze", "unsqueeze"):
    FORMS["full"][_operation] = partial(_reshaped, _operation)
