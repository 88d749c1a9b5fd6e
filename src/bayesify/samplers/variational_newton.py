"""Improved variational online Newton, the optimiser of `bf.IVON`: second moments are the posterior's precisions."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from bayesify.checks import NotNegative, Positive, Rate, check_setting
from bayesify.kernels.normal_kl import TRITON
from bayesify.samplers.bucket import CHUNK
from bayesify.samplers.fused import Tables

LONG = 0.99999  # β₂ of a run whose length nobody knows


class Numbers(NamedTuple):
    """Of one step of a group, in the symbols of `newton_step_`."""

    rate: float  # α
    memory: float  # β₁
    correction: float  # 1 / (1 − β₁ᵗ)
    forget: float  # ρ = 1 − β₂
    num_data: float  # λ
    weight_decay: float  # δ
    centre: float  # μ₀
    start: float  # h₀
    clip: float | None


class VariationalNewton(Optimizer):
    """Natural-gradient descent of the negative ELBO over N(m, σ²), σ² = 1 / (λ (h + δ)), entries independent.

    With the gradient g of the mean loss by m, and ĥ = (∂loss/∂σ) / σ, whose mean is the second derivative of the loss
    averaged over the posterior (the reparameterised estimate g ε / σ of one draw; of several, of local noise and of
    many processes what autograd makes of them):

        ḡ ← β₁ ḡ + (1 − β₁) g
        h ← β₂ h + (1 − β₂) ĥ + ½ (1 − β₂)² (h − ĥ)² / (h + δ)
        m ← m − α h₀ (ḡ / (1 − β₁ᵗ) + δ (m − μ₀)) / (h + δ)

    The loss is the data term alone: the prior N(μ₀, 1/(λ δ)) enters here. h is kept nowhere: σ says it. With
    u = (1 − β₂)(ĥ − h)/(h + δ) the second line is (h + δ) ← (h + δ)(1 + u + u²/2), at least half of what it was,
    whatever the gradient, and u = (1 − β₂) ∂(λ loss + KL)/∂ log σ, of which half is the natural gradient.

    A group with `random` holds all means, then log σ of each; one without holds parameters that only train, which take
    the third line with h + δ = h₀ and no prior: descent with momentum.

    lr:           α; of the paper α h₀. While h + δ is h₀ that of SGD, ten times the one whose momentum=0.9 is of a sum
    num_data:     λ, examples over temperature
    betas:        β₁ and β₂
    weight_decay: δ
    centre:       μ₀; `state[m]["centre"]`, where it is set, is that of every entry of m, beside 0 here
    h0:           h₀, of the h + δ that training starts from
    clip:         bound of every entry of the move before α; None: none
    num_members:  networks that the loss is a mean over, each with a posterior of its own
    fused:        False: tensor operations also where the Triton kernel serves (CUDA, float32)

    Reference: Shen et al., "Variational Learning is Effective for Large Deep Networks", ICML 2024.
    """

    found_inf: Tensor | None = None  # set to skip a step on the device itself, as GradScaler does
    grad_scale: Tensor | None = None

    def __init__(
        self,
        params: Any,
        lr: Positive,
        num_data: Positive,
        betas: tuple[Rate, Rate] = (0.9, LONG),
        weight_decay: NotNegative = 0.0,
        centre: float = 0.0,
        h0: Positive | Tensor = 1.0,
        clip: Positive | None = None,
        num_members: int = 1,
        fused: bool = True,
    ) -> None:
        settings = {"lr": lr, "num_data": num_data, "h0": h0}
        for name, value in settings.items():
            check_setting(name, value, Positive)
        prior = {"weight_decay": weight_decay, "centre": centre}
        more = {"betas": betas, "clip": clip, "num_members": num_members, "random": False, "fused": fused}
        super().__init__(params, settings | prior | more)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._prepare()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """As torch's; a group with `random` has a log σ for every mean."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        group.setdefault("step", torch.zeros((), device="cpu"))
        for p in group["params"]:
            if p.dtype not in (torch.float32, torch.float64):
                raise TypeError(
                    f"{type(self).__name__} moves precisions by shares that {p.dtype} cannot hold: keep the "
                    f"parameters in float32; precision='bf16-mixed' computes the network in half precision"
                )
        self._prepare()

    def _prepare(self) -> None:
        self.tables: dict[tuple[int, ...], Tables] = {}
        every = [p for group in self.param_groups for p in group["params"]]
        self.sharded = any(_local(p) is not p for p in every)
        # a step with `found_inf` set does nothing
        self._step_supports_amp_scaling = all(in_kernel(_local(p)) for p in every)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step of everything that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        kernel = self._step_supports_amp_scaling
        if self.found_inf is not None and not kernel and self.found_inf.item():
            return loss
        around = [(p, state["centre"]) for p, state in self.state.items() if "centre" in state]
        for p, centre in around:  # a step is the same for what is moved by a constant
            p.sub_(centre)
        for group in self.param_groups:
            group["step"] = group["step"] + 1
            rows = self._rows(group)
            if rows and kernel and group["fused"]:
                self._launch(rows, group)
            elif rows:
                scale = group["num_members"] / (1.0 if self.grad_scale is None else self.grad_scale)
                now = numbers(group)
                for row in rows:
                    for piece in pieces(row):
                        newton_step_(now, scale, *piece)
        for p, centre in around:
            p.add_(centre)
        return loss

    def _rows(self, group: dict[str, Any]) -> list[list[Tensor]]:
        """Mean, ḡ and gradient, and of random ones log σ and its gradient, of every tensor that has one."""
        parameters = group["params"]
        half = len(parameters) // 2 if group["random"] else len(parameters)
        rows = []
        for mean, log_std in zip(parameters[:half], parameters[half:] or [None] * half, strict=True):
            if mean.grad is None:
                continue
            state = self.state[mean]
            if "momentum" not in state:
                state["momentum"] = torch.zeros_like(mean)
            row = [mean, state["momentum"], mean.grad]
            row += [] if log_std is None else [log_std, log_std.grad]
            rows.append([_local(t) for t in row] if self.sharded else row)
        return rows

    def _launch(self, rows: list[list[Tensor]], group: dict[str, Any]) -> None:
        from bayesify.samplers.newton_kernel import launch

        first = rows[0][0]
        sizes = tuple(row[0].numel() for row in rows)
        if sizes not in self.tables:
            self.tables[sizes] = Tables(sizes, first.device)
        launch(
            self.tables[sizes], rows, numbers(group), group["num_members"], self.found_inf, self.grad_scale
        )


def numbers(group: dict[str, Any]) -> Numbers:
    """Those of the group's present step."""
    memory, keep = group["betas"]
    correction = 1 / (1 - memory ** group["step"].item())
    decay, centre = group["weight_decay"], group["centre"]
    start, clip = float(group["h0"]), group["clip"]
    return Numbers(
        float(group["lr"]), memory, correction, 1 - keep, group["num_data"], decay, centre, start, clip
    )


def newton_step_(
    z: Numbers,
    scale: float | Tensor,
    mean: Tensor,
    momentum: Tensor,
    gradient: Tensor,
    log_std: Tensor | None = None,
    by_log_std: Tensor | None = None,
) -> None:
    """One step of one tensor in place: ḡ, log σ and m, in this order. Gradients times `scale` are one network's own.

    u = ρ (λ ∂loss/∂log σ − 1 + δ λ σ²)   log σ ← log σ − ½ log(1 + u + u²/2)   h₀/(h + δ) = h₀ λ σ²
    """
    momentum.lerp_(gradient * scale, 1 - z.memory)
    move = momentum * z.correction
    if log_std is not None and by_log_std is not None:
        inverse = (2 * log_std).exp_().mul_(z.num_data)  # 1/(h + δ)
        u = (inverse * z.weight_decay).sub_(1).add_(by_log_std * (z.num_data * scale)).mul_(z.forget)
        growth = u.addcmul_(u, u, value=0.5)  # of h + δ, less 1
        log_std.sub_(growth.log1p(), alpha=0.5)
        move.add_(mean - z.centre, alpha=z.weight_decay).mul_(inverse).div_(growth.add_(1)).mul_(z.start)
    if z.clip is not None:
        move.clamp_(-z.clip, z.clip)
    mean.sub_(move, alpha=z.rate)


def pieces(row: list[Tensor]) -> Iterator[Sequence[Tensor]]:
    """Rows of large tensors on a CPU cut so that what a step touches of them fits into the cache."""
    large = row[0].numel() > CHUNK and row[0].device.type == "cpu"
    if large and all(t.is_contiguous() for t in row):
        yield from zip(*(t.view(-1).split(CHUNK) for t in row), strict=True)
    else:
        yield row


def in_kernel(p: Tensor) -> bool:
    """Can the Triton kernel move it: float32 on CUDA, without gaps?"""
    dense = p.is_contiguous() or (p.dim() == 4 and p.is_contiguous(memory_format=torch.channels_last))
    return TRITON and p.is_cuda and p.dtype == torch.float32 and dense


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # a DTensor's own shard
