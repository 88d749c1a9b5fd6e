"""Classes: one of C per example (or per position of an example)."""

from typing import Annotated, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify.checks import Range, checked
from bayesify.laws.noise import random_signs
from bayesify.likelihoods.base import Likelihood
from bayesify.likelihoods.shapes import at_least_float32, normal_log_prob, sum_over_example
from bayesify.moments.rules.softmax import softmax_var
from bayesify.moments.values import Moments


class Categorical(Likelihood):
    """p(y = c | logits) = softmax(logits)_c.

    class_dim:    where the classes stand in the output: 1 as in torch's cross-entropy (batch, classes, ...); -1 for
                  transformers' token outputs (batch, tokens, classes)
    ignore_index: positions with this target do not count
    class_weight: one number per class, by which each position's log-likelihood is multiplied
    label_smoothing: share s of every label that is spread over all classes in the loss, (1 − s) y + s/C. Predictions
                  are scored without
    """

    name = "categorical"
    task = "classification"
    class_dim: int
    ignore_index: int
    class_weight: Tensor | None

    @checked
    def __init__(
        self,
        class_dim: Annotated[int, Range(least=1, most=8)] | Annotated[int, Range(least=-8, most=-1)] = 1,
        ignore_index: int = -100,
        class_weight: Tensor | list[float] | None = None,
        label_smoothing: Annotated[float, Range(least=0, below=1)] = 0.0,
    ) -> None:
        super().__init__()
        self.label_smoothing = label_smoothing
        self.class_dim = class_dim
        self.ignore_index = ignore_index
        weight = None if class_weight is None else _class_weight(class_weight)
        self.register_buffer("class_weight", weight)

    def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
        self._check_output(output)
        classes = output.shape[self.class_dim]
        if target.is_floating_point() and target.shape == output.shape:
            return self._check_soft(target, values)
        if target.is_floating_point() or target.dtype == torch.bool:
            raise TypeError(
                f"target has dtype {target.dtype}; a categorical likelihood needs class indices "
                f"(torch.long), or probabilities of the output's shape {tuple(output.shape)}"
            )
        wanted = list(output.shape)
        del wanted[self.class_dim]
        if list(target.shape) != wanted:
            raise ValueError(self._shape_message(output, target, wanted))
        target = target.long()
        if values and target.numel():
            # one reading of the device; ignored positions count as class 0
            low, high = torch.stack(target.where(target != self.ignore_index, 0).aminmax()).tolist()
            if low < 0 or high >= classes:
                raise ValueError(
                    f"target holds classes {low} to {high}, but the network has {classes} outputs: "
                    f"classes must lie in 0..{classes - 1}"
                )
        return target

    def _check_output(self, output: Tensor) -> None:
        dims = output.dim()
        if dims < 2 or not -dims <= self.class_dim < dims or self.class_dim % dims == 0:
            needed = "(batch, ..., classes)" if self.class_dim < 0 else "(batch, classes, ...)"
            raise ValueError(
                f"the network's output has shape {tuple(output.shape)}; a categorical likelihood with "
                f"class_dim={self.class_dim} needs {needed}: "
                f"give inputs with their batch dimension, x[None] of a single one, or "
                f"use likelihood='bernoulli' for one logit per example"
            )

    def _check_soft(self, target: Tensor, values: bool) -> Tensor:
        if values:
            sums = target.sum(self.class_dim)
            if not (target >= 0).all() or not torch.allclose(sums, torch.ones_like(sums), atol=1e-3):
                raise ValueError(
                    "target is floating-point, so it holds class probabilities, but they are not all "
                    "non-negative with sum 1: use likelihood='bernoulli' for several labels at once"
                )
        return target

    def _shape_message(self, output: Tensor, target: Tensor, wanted: list[int]) -> str:
        message = f"target has shape {tuple(target.shape)}; for an output {tuple(output.shape)} "
        message += f"it must be {tuple(wanted)}"
        if list(target.shape) == list(output.shape[:-1]):
            message += ": classes stand last here, so use bf.likelihood('categorical', class_dim=-1)"
        elif target.shape == output.shape:
            message += ": it looks one-hot, so use target.argmax(1)"
        return message

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        logits = output.movedim(self.class_dim, 1)
        soft = target.is_floating_point()
        loss = F.cross_entropy(
            logits,
            target.movedim(self.class_dim, 1) if soft else target,
            weight=None if self.class_weight is None else self.class_weight.to(logits.dtype),
            ignore_index=-100 if soft else self.ignore_index,  # soft labels ignore nothing
            reduction="none",
        )
        return -sum_over_example(loss)

    def curvature_root(self, output: Tensor, target: Tensor, columns: Tensor) -> Tensor:
        """The Hessian of a position that counts c is c (diag p − p pᵀ); its root √c (diag √p − p √pᵀ)."""
        shape, dim = output.shape, self.class_dim % output.dim() + 1
        p = output.softmax(self.class_dim)
        xi = columns.reshape(len(columns), *shape)  # (columns, batch, ...)
        along = (p.sqrt() * xi).sum(dim, keepdim=True)
        counted = self._counted(target).to(p).sqrt().unsqueeze(dim - 1)
        return (counted * (p.sqrt() * xi - p * along)).reshape(columns.shape)

    def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
        self._check_output(output)
        probs = at_least_float32(output).softmax(self.class_dim)
        return probs, torch.special.entr(probs).sum(self.class_dim)

    def check_probs(self, probs: Tensor, target: Tensor) -> Tensor:
        """As `check`: the logits have the shape of the probabilities."""
        return self.check(probs, target, values=True)

    @property
    def options(self) -> dict[str, Any]:
        weight = None if self.class_weight is None else self.class_weight.tolist()
        return {
            "class_dim": self.class_dim,
            "ignore_index": self.ignore_index,
            "class_weight": weight,
            "label_smoothing": self.label_smoothing,
        }

    def matched(self, output: Any, target: Tensor, values: bool) -> Tensor:
        """With smoothing as probabilities, those of positions that do not count 0."""
        target = super().matched(output, target, values)
        return self._smoothed(output, target) if self.label_smoothing else target

    def _smoothed(self, output: Tensor, target: Tensor) -> Tensor:
        """(1 − s) y + s/C for each position."""
        share, count = self.label_smoothing, output.shape[self.class_dim]
        if target.is_floating_point():
            return (1 - share) * target + share / count
        valid = (target != self.ignore_index).unsqueeze(-1)  # (batch, ..., 1)
        one_hot = F.one_hot(target * valid[..., 0], count)  # (batch, ..., classes)
        return (((1 - share) * one_hot + share / count) * valid).movedim(-1, self.class_dim).to(output.dtype)

    def expected_log_prob(self, output: Any, target: Tensor, logits: str = "bound") -> Tensor:
        """It has no closed form: a lower "bound", an expansion to "second_order", or at the "mean": log p(y | E z)."""
        if logits == "bound" and not target.is_floating_point():
            return self.log_prob(self._cautious_logits(output, target), target)
        log_prob = self.log_prob(output.mean, target)
        if logits == "mean":
            return log_prob
        return log_prob - sum_over_example(self._counted(target) * self._curvature(output))

    @property
    def is_softmax(self) -> bool:  # type: ignore[override]
        return self.class_weight is None

    def _cautious_logits(self, output: Moments, target: Tensor) -> Tensor:
        """Logits whose cross-entropy bounds the expected one from above (Jensen, over differences to the target's):

        −E log p(y) = E log Σ_k e^{z_k − z_y} ≤ log(1 + Σ_{k≠y} e^{m_k − m_y + (s_k + s_y)/2}): m_k + s_k/2 and
        m_y − s_y/2.
        With full covariance s_k + s_y is Var(z_k − z_y).
        """
        dim = self.class_dim
        valid = target.masked_fill(target == self.ignore_index, 0)
        index = valid.unsqueeze(dim if dim >= 0 else dim + output.mean.dim())
        if output.cov is not None:
            column = output.cov.gather(2, index[:, None].expand(-1, output.cov.shape[1], 1))[:, :, 0]
            return output.mean + 0.5 * (
                output.var - 2 * column
            )  # at y: −s_y/2; elsewhere less by it: s_k/2 − cov
        half = 0.5 * output.var
        return output.mean + half - torch.zeros_like(half).scatter(dim, index, 2 * half.gather(dim, index))

    def probe(self, output: Any, target: Tensor) -> tuple[Tensor, Any, Tensor]:
        """About differences of logits: ½ Σ_k π_k Var(z_k − z_y), π_k the weights of the bound, is the mean over random
        signs ξ of uᵀ Cov u, u = Σ_{k≠y} √(π_k/2) ξ_k (e_k − e_y)."""
        if target.is_floating_point():
            return super().probe(output, target)
        known = Moments(output.mean, output.var.detach())
        cautious = self._cautious_logits(known, target)
        with torch.no_grad():
            dim = self.class_dim
            valid = target.masked_fill(target == self.ignore_index, 0)
            chosen = F.one_hot(valid, cautious.shape[dim]).movedim(-1, dim).to(cautious.dtype)
            counted = (
                self._counted(target).unsqueeze(dim if dim >= 0 else dim + cautious.dim()).to(cautious.dtype)
            )
            share = 0.5 * counted * cautious.softmax(dim) * (1 - chosen)
            own = (known.var * chosen).sum(dim, keepdim=True)
            u = share.sqrt() * random_signs(tuple(share.shape), share, None)
            u = u - chosen * u.sum(dim, keepdim=True)
        return (
            self.log_prob(cautious, target),
            u[None],
            sum_over_example((share * (known.var + own)).sum(dim)),
        )

    def _curvature(self, output: Moments) -> Tensor:
        """E log Σ exp z − log Σ exp E z to second order: ½ Σ_k p_k(1 − p_k) Var z_k, or ½ tr(J Cov z)."""
        p = output.mean.softmax(self.class_dim)
        if output.cov is not None:
            quadratic = torch.einsum("bi,bij,bj->b", p, output.cov, p)
            return 0.5 * ((p * output.var).sum(1) - quadratic)
        return 0.5 * (p * (1 - p) * output.var).sum(self.class_dim)

    def _counted(self, target: Tensor) -> Tensor:
        """How much each position counts: class weights, and 0 for ignored ones."""
        weight = self.class_weight
        if target.is_floating_point():
            soft = target.movedim(self.class_dim, -1)
            return soft.sum(-1) if weight is None else soft @ weight.to(soft.dtype)
        valid = target != self.ignore_index
        if weight is None:
            return valid.to(torch.get_default_dtype())
        return valid * weight[target.masked_fill(~valid, 0)]

    def gaussian_log_prob(self, output: Any, target: Tensor, var_floor: float = 1e-3) -> Tensor:
        """With the moments of softmax(z) to first order; without a floor the density of a certain and right answer is
        unbounded."""
        if target.dim() > 1 and not target.is_floating_point():
            raise ValueError(
                f"objective='gaussian' takes one class per example, the target has shape {tuple(target.shape)}: "
                f"use objective='expected'"
            )
        p = output.mean.softmax(self.class_dim)
        y = self.classes.one_hot(target, p)
        if output.cov is not None:
            return _normal_full(p, output.cov, y, var_floor)
        return normal_log_prob(p, softmax_var(p, output.var, self.class_dim) + var_floor, y)


def _class_weight(value: Any) -> Tensor:
    """One number of at least 0 per class, in float32."""
    try:
        weight = torch.as_tensor(value, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        weight = torch.zeros(())
    if weight.dim() != 1 or not ((weight >= 0) & weight.isfinite()).all():
        raise ValueError(
            f"likelihood class_weight={value!r} must be a finite number of at least 0 for each class, e.g. [1.0, 2.0]"
        )
    return weight


def _normal_full(p: Tensor, cov: Tensor, target: Tensor, var_floor: float) -> Tensor:
    """log N(y; p, J Σ Jᵀ + floor I), J = diag p − ppᵀ."""
    jacobian = p.diag_embed() - p[:, :, None] * p[:, None, :]
    cov = jacobian @ cov @ jacobian.mT + var_floor * torch.eye(p.shape[1], dtype=p.dtype, device=p.device)
    return torch.distributions.MultivariateNormal(p, cov, validate_args=False).log_prob(target)
