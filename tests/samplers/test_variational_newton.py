"""The variational Newton optimiser: its formulas, the natural gradient, and one kernel for the same law."""

import copy
import importlib.util
import math
import os
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.samplers.variational_newton import VariationalNewton

F64 = torch.float64
SHAPES = [(7, 11), (3,), (50, 61), (1,), (4097,), (2048,)]


def pairs(shapes: list[tuple[int, ...]], dtype: torch.dtype = F64) -> list[nn.Parameter]:
    """All means, then log σ of each."""
    generator = torch.Generator().manual_seed(0)
    means = [nn.Parameter(torch.randn(s, generator=generator, dtype=dtype)) for s in shapes]
    log_stds = [nn.Parameter(-2 + 0.3 * torch.randn(s, generator=generator, dtype=dtype)) for s in shapes]
    return [*means, *log_stds]


def gradients(parameters: list[nn.Parameter], seed: int, size: float = 0.1) -> None:
    generator = torch.Generator().manual_seed(seed)
    for p in parameters:
        p.grad = (size * torch.randn(p.shape, generator=generator)).to(p)


@pytest.mark.parametrize("clip", [None, 0.05])
@pytest.mark.parametrize("members", [1, 3])
def test_steps_are_those_of_the_paper(clip: float | None, members: int) -> None:
    """Algorithm 1 written out with h of its own, its α is lr · h₀; ĥ = (∂loss/∂log σ) / σ² is g ε / σ of m + σ ε."""
    m, log_std = pairs([(5, 4)])
    alpha, lam, b1, b2, delta, centre = 0.2, 37.0, 0.8, 0.9, 0.05, 0.3
    group = {"params": [m, log_std], "random": True, "num_members": members, "h0": 1.7}
    optimizer = VariationalNewton(
        [group], lr=alpha, num_data=lam, betas=(b1, b2), weight_decay=delta, centre=centre, clip=clip
    )
    mean, average = m.detach().clone(), torch.zeros_like(m)
    h = 1 / (lam * (2 * log_std.detach()).exp()) - delta
    generator = torch.Generator().manual_seed(1)
    for t in range(1, 6):
        g, eps = torch.randn(2, 5, 4, generator=generator, dtype=F64)
        sigma = 1 / (lam * (h + delta)).sqrt()
        m.grad, log_std.grad = g / members, g * eps * sigma / members
        optimizer.step()
        h_hat = g * eps / sigma
        average = b1 * average + (1 - b1) * g
        h = b2 * h + (1 - b2) * h_hat + 0.5 * (1 - b2) ** 2 * (h - h_hat) ** 2 / (h + delta)
        move = (average / (1 - b1**t) + delta * (mean - centre)) / (h + delta)
        mean = mean - alpha * (1.7 * move if clip is None else (1.7 * move).clamp(-clip, clip))
        torch.testing.assert_close(m.detach(), mean, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close((-2 * log_std.detach()).exp() / lam, h + delta, rtol=1e-10, atol=0)


def test_what_is_not_random_descends_with_momentum() -> None:
    """θ ← θ − α ḡ, with the bias of the average taken out."""
    p = nn.Parameter(torch.ones(3, dtype=F64))
    optimizer = VariationalNewton([p], lr=0.1, num_data=10, betas=(0.9, 0.99), h0=0.5)
    expected, average = torch.ones(3, dtype=F64), torch.zeros(3, dtype=F64)
    for t in range(1, 4):
        p.grad = p.detach().clone()
        average = 0.9 * average + 0.1 * expected
        expected = expected - 0.1 * average / (1 - 0.9**t)
        optimizer.step()
        torch.testing.assert_close(p.detach(), expected, rtol=1e-12, atol=0)


def fisher(m: Tensor, log_std: Tensor) -> Tensor:
    """The Hessian of KL(q_θ ‖ q_θ′) by θ′ at θ, by autograd: (2n, 2n) of θ = (m, log σ)."""
    here = torch.distributions.Normal(m, log_std.exp())

    def divergence(theta: Tensor) -> Tensor:
        there = torch.distributions.Normal(theta[0], theta[1].exp())
        return torch.distributions.kl_divergence(here, there).sum()

    size = 2 * m.numel()
    return torch.autograd.functional.hessian(divergence, torch.stack([m, log_std])).reshape(size, size)


def test_one_step_is_the_natural_gradient_of_our_own_elbo() -> None:
    """The same draw, β₁ = 0: m moves by −α h₀ F⁻¹ ∇(num_data · total), log σ by −½ log(1 + u + u²/2) with u twice
    its natural gradient times ρ (F is 2 there): to first order in ρ by −ρ F⁻¹ ∇. m takes σ after that."""
    rho, alpha, num_data = 1e-4, 0.1, 40
    torch.manual_seed(0)
    net = nn.Linear(3, 2, bias=False, dtype=F64)
    prior = bf.prior("normal", mean=0.2, std=0.7)
    model = bf.bayesify(copy.deepcopy(net), bf.IVON(prior=prior, beta1=0.0, beta2=1 - rho), num_data=num_data)
    ours = bf.bayesify(net, bf.MonteCarloVI(prior=prior, kl="exact"), num_data=num_data)
    optimizer = model.optimizer(lr=alpha)
    ours.load_state_dict(model.state_dict())
    x, y = torch.randn(8, 3, dtype=F64), torch.randint(2, (8,))
    elbo = ours.loss(x, y, generator=torch.Generator().manual_seed(3))
    elbo.total.backward()
    m, log_std = ours.net.weight, ours.posterior.q.weight.log_scale
    gradient = num_data * torch.stack([m.grad, log_std.grad]).flatten()
    natural = torch.linalg.solve(fisher(m.detach(), log_std.detach()), gradient).view(2, 2, 3)
    loss = model.loss(x, y, generator=torch.Generator().manual_seed(3))
    assert torch.equal(loss.total, loss.nll) and torch.equal(loss.nll, elbo.nll)
    torch.testing.assert_close(loss.kl, elbo.kl.detach(), rtol=1e-12, atol=0)
    loss.total.backward()
    optimizer.step()
    moved = model.posterior.q.weight.log_scale.detach() - log_std.detach()
    u = 2 * rho * natural[1]
    torch.testing.assert_close(moved, -0.5 * (1 + u + u**2 / 2).log(), rtol=1e-9, atol=1e-15)
    torch.testing.assert_close(moved, -rho * natural[1], rtol=0.05, atol=0)
    h0 = (-2 * log_std.detach().mean()).exp() / num_data
    by_mean = -alpha * h0 * natural[0] * (2 * moved).exp()
    torch.testing.assert_close(model.net.weight.detach() - m.detach(), by_mean, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("beta2", [0.0, 0.9, 0.999])
def test_precisions_stay_positive_whatever_the_gradient(beta2: float) -> None:
    """No step takes more than half of h + δ, the least of 1 + u + u²/2 at u = −1."""
    parameters = pairs([(200,)])
    optimizer = VariationalNewton(
        [{"params": parameters, "random": True}], lr=0.1, num_data=100, betas=(0.9, beta2), weight_decay=1e-3
    )
    log_std = parameters[1]
    for step in range(50):
        before = log_std.detach().clone()
        gradients(parameters, step, size=10.0 ** (step % 10 - 2))
        optimizer.step()
        assert (log_std.detach() - before <= 0.5 * math.log(2) + 1e-12).all()
        assert log_std.isfinite().all()


def exact_loss(m: Tensor, log_std: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """E_q of half the mean square: (‖y − X m‖² + Σ_ij X_ij² σ_j²) / 2N."""
    squares = (y - x @ m).square().sum() + (x.square() @ (2 * log_std).exp()).sum()
    return squares / (2 * len(y))


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_it_rests_at_the_best_factorized_posterior(temperature: float) -> None:
    """Linear regression of unit noise: m that of the exact posterior, σ² = T / diag(precision)."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(30, 4, generator=generator, dtype=F64) @ torch.randn(4, 4, generator=generator, dtype=F64)
    y, std = torch.randn(30, generator=generator, dtype=F64), 0.4
    m, log_std = pairs([(4,)])
    group = {"params": [m, log_std], "random": True, "weight_decay": 1 / (30 * std**2)}
    optimizer = VariationalNewton([group], lr=0.1, num_data=30 / temperature, betas=(0.5, 0.9), h0=1.0)
    for _ in range(1500):
        optimizer.zero_grad()
        exact_loss(m, log_std, x, y).backward()
        optimizer.step()
    precision = x.T @ x + torch.eye(4, dtype=F64) / std**2
    torch.testing.assert_close(m.detach(), torch.linalg.solve(precision, x.T @ y), rtol=1e-8, atol=1e-10)
    torch.testing.assert_close(
        (2 * log_std.detach()).exp(), temperature / precision.diagonal(), rtol=1e-8, atol=0
    )


# -- the kernel -------------------------------------------------------------------------------------------
@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> str:
    """CUDA, or the CPU where Triton interprets its kernels (TRITON_INTERPRET=1)."""
    if torch.cuda.is_available():
        return "cuda"
    if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
        pytest.skip("needs CUDA, or triton and TRITON_INTERPRET=1")
    monkeypatch.setattr("bayesify.samplers.variational_newton.in_kernel", lambda p: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    return "cpu"


def optimizer_of(parameters: list[nn.Parameter], fused: bool, **settings: Any) -> VariationalNewton:
    """Random tensors, and a group of two that only train."""
    more = [nn.Parameter(p.detach().clone()) for p in parameters[:2]]
    groups = [{"params": parameters, "random": True}, {"params": more}]
    return VariationalNewton(
        groups, lr=0.1, num_data=50, weight_decay=0.1, centre=0.2, fused=fused, **settings
    )


@pytest.mark.parametrize(
    "settings", [{}, {"clip": 0.01}, {"num_members": 3}, {"betas": (0.0, 0.0)}, {"h0": 0.2}], ids=str
)
def test_the_kernel_takes_the_same_steps(settings: dict[str, Any], device: str) -> None:
    """Six steps, each from the state of the tensor operations: 2e-6 of the size of each tensor and of the entry. That
    is 30 roundings of float32; a step has about twenty. The last two steps have scaled gradients."""
    mine = [nn.Parameter(p.detach().to(device)) for p in pairs(SHAPES, torch.float32)]
    theirs = pairs(SHAPES, torch.float32)
    kernel, reference = (optimizer_of(p, fused, **settings) for p, fused in ((mine, True), (theirs, False)))
    every = [[p for group in o.param_groups for p in group["params"]] for o in (kernel, reference)]
    for step in range(6):
        gradients(every[1], step)
        for p, q in zip(*every, strict=True):
            p.grad = q.grad.to(device)
        if step > 3:
            kernel.grad_scale = torch.full((), 4.0, device=device)
            reference.grad_scale = torch.full((), 4.0)
        kernel.step()
        reference.step()
        for p, q in zip(*every, strict=True):
            _close(p, q)
            for key, value in reference.state[q].items():
                _close(kernel.state[p][key], value)
                kernel.state[p][key].copy_(value)
            p.data.copy_(q)


def _close(found: Tensor, expected: Tensor) -> None:
    found, expected = found.detach().cpu(), expected.detach()
    size = expected.square().mean().sqrt()
    assert ((found - expected).abs() <= 2e-6 * (size + expected.abs())).all()


def test_a_bad_step_is_skipped_by_the_kernel(device: str) -> None:
    parameters = [nn.Parameter(p.detach().to(device)) for p in pairs(SHAPES, torch.float32)]
    optimizer = optimizer_of(parameters, True)
    gradients(parameters, 0, size=math.nan)
    before = copy.deepcopy(parameters)
    optimizer.found_inf = torch.ones((), device=device)
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))
    gradients(parameters, 0)
    optimizer.found_inf = torch.zeros((), device=device)
    optimizer.step()
    assert not any(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))


def test_channels_last_weights_go_through_the_kernel_as_they_lie(device: str) -> None:
    """Gradients in another layout, too."""
    parameters = pairs([(8, 4, 3, 3)], torch.float32)
    last = [nn.Parameter(p.detach().to(device, memory_format=torch.channels_last)) for p in parameters]
    kernel, reference = optimizer_of(last, True), optimizer_of(parameters, False)
    gradients(parameters, 0)
    for p, q in zip(last, parameters, strict=True):
        p.grad = q.grad.to(device).contiguous()
    kernel.step()
    reference.step()
    for p, q in zip(last, parameters, strict=True):
        _close(p, q)


def test_a_bad_step_is_skipped_by_tensor_operations() -> None:
    parameters = pairs(SHAPES)
    optimizer = optimizer_of(parameters, False)
    gradients(parameters, 0, size=math.nan)
    before = copy.deepcopy(parameters)
    optimizer.found_inf = torch.ones(())
    optimizer.step()
    assert all(torch.equal(p, q) for p, q in zip(parameters, before, strict=True))


# -- as an optimiser --------------------------------------------------------------------------------------
def test_its_state_goes_on_where_it_was() -> None:
    def steps(parameters: list[nn.Parameter], optimizer: VariationalNewton, first: int) -> None:
        for step in range(first, first + 3):
            gradients(parameters, step)
            optimizer.step()

    whole, halves = pairs(SHAPES), pairs(SHAPES)
    first, second = optimizer_of(whole, False), optimizer_of(halves, False)
    steps(whole, first, 0)
    steps(whole, first, 3)
    steps(halves, second, 0)
    state = second.state_dict()
    for optimizer in (optimizer_of(halves, False), copy.deepcopy(second)):
        here = [nn.Parameter(p.detach().clone()) for p in halves]
        made = optimizer_of(here, False)
        made.load_state_dict(copy.deepcopy(state) if optimizer is not second else optimizer.state_dict())
        steps(here, made, 3)
        assert all(torch.equal(p, q) for p, q in zip(whole, here, strict=True))
    assert second.param_groups[0]["step"] == 3


def test_a_closure_is_called_with_gradients_on() -> None:
    m, log_std = pairs([(4,)])
    optimizer = VariationalNewton([{"params": [m, log_std], "random": True}], lr=0.1, num_data=10)
    x, y = torch.ones(3, 4, dtype=F64), torch.ones(3, dtype=F64)

    def closure() -> Tensor:
        loss = exact_loss(m, log_std, x, y)
        loss.backward()
        return loss

    assert optimizer.step(closure) > exact_loss(m, log_std, x, y)


def test_parameters_without_a_gradient_stay() -> None:
    parameters = pairs([(2,), (3,)])
    optimizer = VariationalNewton([{"params": parameters, "random": True}], lr=0.1, num_data=10)
    before = copy.deepcopy(parameters)
    for p in parameters[::2]:
        p.grad = torch.ones_like(p)
    optimizer.step()
    assert [torch.equal(p, q) for p, q in zip(parameters, before, strict=True)] == [False, True, False, True]


def test_refusals() -> None:
    half = nn.Parameter(torch.zeros(3, dtype=torch.bfloat16))
    with pytest.raises(TypeError, match="torch.bfloat16 cannot hold: keep the parameters in float32"):
        VariationalNewton([half], lr=0.1, num_data=10)
    for name in ("lr", "num_data", "h0"):
        with pytest.raises(ValueError, match=f"{name}=-1 must be a number above 0"):
            VariationalNewton([nn.Parameter(torch.zeros(3))], **{"lr": 0.1, "num_data": 10, name: -1})
