"""The KL of components: eq. 2 and 6 as corrected, against the true mixture and against weight decay."""

import itertools
import math
from typing import Any

import pytest
import torch
from scipy import integrate, stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.divergences.components import (
    Mixture,
    carry_squares,
    categorical_entropy,
    monte_carlo,
    narrow_normal,
    weighted_squares,
)

FAILURE_RATE = 1e-6
TAU = {"patched_weight": 2.0, "patched_bias": 3.0, "shared_weight": 5.0, "shared_bias": 7.0}


def make(**options: Any) -> bf.BayesianModule:
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    options = {"num_components": 3, "prior_precision": TAU, **options}
    return bf.bayesify(net.double(), bf.EnsemblePatching(**options), num_data=20)


def squares(model: bf.BayesianModule, name: str) -> list[Tensor]:
    return [
        m.square().sum()
        for m in model.posterior.centroids(name, model.posterior.held([name]))
        if m is not None
    ]


@pytest.mark.parametrize("probs", ["uniform", (0.2, 0.2, 0.6)])
def test_the_kl_is_the_l2_form_with_the_probabilities(probs: Any) -> None:
    """Σ_k (τ p_k / 2) ‖M_k‖² over patched, Σ (τ / 2) ‖M‖² over shared tensors, each role with its own τ."""
    model = make(mixing=probs)
    p = (1 / 3,) * 3 if probs == "uniform" else probs
    expected = torch.zeros((), dtype=torch.float64)
    for name, parameter in model.net.named_parameters():
        kind = "bias" if name.endswith("bias") else "weight"
        if name in model.posterior.patches:
            tau = TAU[f"patched_{kind}"]
            expected += sum(tau * p_k / 2 * s for p_k, s in zip(p, squares(model, name), strict=True))
        else:
            expected += TAU[f"shared_{kind}"] / 2 * parameter.square().sum()
    torch.testing.assert_close(model.kl(), expected)
    torch.testing.assert_close(model.loss(torch.randn(5, 3).double(), torch.zeros(5).long()).kl, expected)


@pytest.mark.parametrize("probs", ["uniform", (0.2, 0.2, 0.6)])
def test_its_gradient_is_weight_decay_with_the_probabilities(probs: Any) -> None:
    """∂/∂M_k of kl / num_data is τ p_k M_k / N: what weight_decay = τ p_k / N does."""
    model = make(mixing=probs)
    p = torch.tensor([1 / 3] * 3 if probs == "uniform" else probs, dtype=torch.float64)
    (model.kl() / 20).backward()
    for name in model.posterior.patches:
        tau = TAU["patched_bias" if name.endswith("bias") else "patched_weight"]
        own, others = model.net.get_parameter(name), model.get_parameter(f"posterior.components.{name}")
        torch.testing.assert_close(own.grad, tau * p[0] / 20 * own)
        each = p[1:].view(-1, *(1,) * own.dim())
        torch.testing.assert_close(others.grad, tau * each / 20 * others)
    torch.testing.assert_close(model.net[0].weight.grad, TAU["shared_weight"] / 20 * model.net[0].weight)


def test_dropout_counts_the_centroid_that_is_kept() -> None:
    """M_1 = W / p_1 with probability p_1; the component at zero adds nothing (eq. 2)."""
    model = make(assignment="dropout", drop_prob=0.25, prior_precision=2.0)
    weights = [model.net[0].weight, model.net[2].weight]
    rest = [p for name, p in model.net.named_parameters() if name not in model.posterior.patches]
    expected = sum(0.75 * (w / 0.75).square().sum() for w in weights) + sum(p.square().sum() for p in rest)
    torch.testing.assert_close(model.kl(), expected)


@pytest.mark.parametrize("assignment", ["layer", "element", "member", "dropout", "dropconnect"])
def test_without_overlap_the_full_form_is_the_kl_of_the_true_mixture(assignment: str) -> None:
    """σ = 1e-3 and centroids about 1 apart: L2 + constant − H(z) against 200 draws of log q − log p. The draws have
    their own standard error, taken from 20 repetitions."""
    where = bf.where.matching("^2")  # weight and bias of one layer
    full = make(assignment=assignment, std=1e-3, spread=3.0, kl="full", where=where)
    parts = full.posterior.divergence
    names = full.posterior.held(list(full.posterior.slots))
    expected = parts.squares(full.posterior, names) + parts.constant(full.posterior, names)
    expected = expected - parts.entropy(full.posterior, names)
    torch.testing.assert_close(full.kl(), expected)
    full.posterior.divergence.form = "monte_carlo"
    full.posterior.divergence.num_draws = 200
    with torch.no_grad():
        estimates = torch.stack([full.kl() for _ in range(20)])
    error = estimates.std() / math.sqrt(20)
    assert abs(estimates.mean() - expected) < stats.t.isf(FAILURE_RATE / 2, 19) * error


def test_shared_weights_of_some_width_are_normal() -> None:
    """Eq. 3: what `shared_std` adds is the KL of N(M, s²) to N(0, 1/τ) by torch.distributions, less (τ/2) ‖M‖²."""
    narrow, wide = (make(std=1e-3, shared_std=s, kl="full") for s in (0.0, 0.02))
    wide.load_state_dict(narrow.state_dict())
    expected = torch.zeros((), dtype=torch.float64)
    for name in wide.posterior.shared:
        mean = wide.net.get_parameter(name)
        tau = TAU["shared_bias" if name.endswith("bias") else "shared_weight"]
        width, prior = (torch.full_like(mean, value) for value in (0.02, tau**-0.5))
        q, p = torch.distributions.Normal(mean, width), torch.distributions.Normal(0 * mean, prior)
        kl = torch.distributions.kl_divergence(q, p).sum()
        expected = expected + kl - tau / 2 * mean.square().sum()
    torch.testing.assert_close(wide.kl() - narrow.kl(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("assignment", "count"), [("layer", 1), ("element", 10), ("dropout", 4), ("member", 1)]
)
def test_one_entropy_for_every_independent_assignment(assignment: str, count: int) -> None:
    """The last layer is 2 × 4 with 2 biases: EMP has one z, ECMP ten, dropout one for each of four inputs."""
    model = make(assignment=assignment, std=1e-3, drop_prob=0.25, where=bf.where.matching("^2"))
    p = [0.75, 0.25] if assignment == "dropout" else [1 / 3] * 3
    entropy = model.posterior.divergence.entropy(
        model.posterior, model.posterior.held(list(model.posterior.slots))
    )
    assert entropy.item() == pytest.approx(-count * sum(q * math.log(q) for q in p))


def test_the_entropy_of_a_mixture_lies_between_its_bounds() -> None:
    """Σ_k p_k H_k ≤ H(q) ≤ Σ_k p_k H_k + H(z), H_k = ½(1 + log 2πσ²) in one dimension, where the paper's eq. 7 has the
    first inequality reversed and K/2 for ½. By quadrature, p = (0.2, 0.3, 0.5): equal centroids give the lower, far
    ones the upper bound."""
    p, std = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64), 1.0
    low = 0.5 * (1 + math.log(2 * math.pi * std**2)) * p.sum()
    high = low + categorical_entropy(p)
    assert low.item() == pytest.approx(stats.norm.entropy())
    values = []
    for distance in (0.0, 1.0, 3.0, 30.0):
        centres = [-distance, 0.0, distance]

        def minus_q_log_q(w: float, centres: list[float] = centres) -> float:
            q = sum(a * stats.norm.pdf(w, c) for a, c in zip(p.tolist(), centres, strict=True))
            return -q * math.log(q) if q > 0 else 0.0

        edges = [-distance - 10, -10, 10, distance + 10]
        values.append(
            sum(integrate.quad(minus_q_log_q, a, b, limit=200)[0] for a, b in itertools.pairwise(edges))
        )
    assert values == sorted(values)
    assert values[0] == pytest.approx(low.item(), abs=1e-6)
    assert values[-1] == pytest.approx(high.item(), abs=1e-6)


def test_overlapping_components_are_where_the_forms_differ() -> None:
    """Equal centroids are one normal: the true KL has no H(z) to subtract. 4000 draws; the error of the mean of
    log q − log p from D entries is at most √(D/2 + …)/√n, measured here by repetition."""
    centroids = torch.zeros(3, 2, 2, dtype=torch.float64)
    mixture = Mixture(centroids, (2, 2), 0.3, 1.0)
    p = torch.full((3,), 1 / 3, dtype=torch.float64)
    estimates = torch.stack([monte_carlo([mixture], p, 400) for _ in range(10)])
    exact = narrow_normal(4, 1.0, 0.3)
    assert abs(estimates.mean() - exact) < stats.t.isf(FAILURE_RATE / 2, 9) * estimates.std() / math.sqrt(10)
    assert categorical_entropy(p).item() == pytest.approx(math.log(3))


def test_lambdas_are_a_penalty_on_the_mean_loss() -> None:
    """C.1: no p_k, no num_data; λ equals prior_precision τ = 2 λ N / p_k."""
    lambdas = {"patched_weight": 0.1, "patched_bias": 0.2, "shared_weight": 0.3, "shared_bias": 0.4}
    model = make(l2=lambdas)
    model.num_data = None
    expected = torch.zeros((), dtype=torch.float64)
    for name, parameter in model.net.named_parameters():
        role = model.posterior.role(name)
        each = squares(model, name) if name in model.posterior.patches else [parameter.square().sum()]
        expected += lambdas[role] * sum(each)
    x, y = torch.randn(5, 3).double(), torch.zeros(5).long()
    for num_data in (None, 20, 10**6):
        model.num_data = num_data
        loss = model.loss(x, y)
        torch.testing.assert_close(loss.total - loss.nll, expected)
    tau = {k: 2 * v * 20 * (3 if k.startswith("patched") else 1) for k, v in lambdas.items()}
    model.posterior.divergence.l2 = None
    model.posterior.divergence.precision = tau
    torch.testing.assert_close(model.kl() / 20, expected)


def test_learned_widths_and_probabilities_bring_their_terms_into_the_kl() -> None:
    model = make(std=0.1, learn_std=True, mixing="learned")
    parts, names = model.posterior.divergence, model.posterior.held(list(model.posterior.slots))
    q = model.posterior
    expected = parts.squares(q, names) + parts.constant(q, names) - parts.entropy(q, names)
    torch.testing.assert_close(model.kl(), expected)
    model.kl().backward()
    free = [p for name, p in model.named_parameters() if "logits" in name or "log_std" in name]
    assert len(free) == 2 + 4  # two layers, four tensors
    assert all(p.grad is not None and p.grad.any() for p in free)
    # uniform p is where −H(z) is smallest, so only the squares pull on the logits
    name = "1.weight"
    log_std = model.get_parameter(f"posterior.log_std.{name}")
    tau = TAU["patched_weight"]
    assert log_std.grad.item() == pytest.approx(4 * (tau * 0.1**2 - 1), rel=1e-6)


def test_the_constant_of_a_width_of_zero_is_infinite_and_left_out() -> None:
    model = make()
    q = model.posterior
    assert q.divergence.constant(q, q.held(list(q.slots))) == math.inf
    assert model.kl().isfinite()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_weighted_squares_together_and_one_by_one(dtype: torch.dtype) -> None:
    tensors = [torch.randn(3, 4, dtype=dtype, requires_grad=True) for _ in range(5)]
    weights = [0.5, 2.0, 0.5, 1.0, 0.0]
    together = weighted_squares(tensors, weights)
    plain = sum(c * w.square().sum() for c, w in zip(weights, tensors, strict=True))
    torch.testing.assert_close(together, plain)
    for a, b in zip(
        torch.autograd.grad(3 * together, tensors), torch.autograd.grad(3 * plain, tensors), strict=True
    ):
        torch.testing.assert_close(a, b)
    assert torch.allclose(
        torch.func.vmap(lambda w: weighted_squares([w], [2.0]))(tensors[0]).sum(),
        2 * tensors[0].square().sum(),
    )


def test_weighted_squares_in_compiled_code_take_one_operator() -> None:
    """It takes a convolution's weight in any memory order; compiled value and gradients are those of the eager one."""
    torch._dynamo.reset()
    shapes = [(3, 4), (4, 3, 2, 2), (5,)]
    tensors = [torch.randn(shape, requires_grad=True) for shape in shapes]
    weights = [0.5, 2.0, 0.5]
    detached = [w.detach() for w in tensors]
    detached[1] = detached[1].to(memory_format=torch.channels_last)
    torch.library.opcheck(torch.ops.bayesify.norms.default, (detached,))
    norms = torch.ops.bayesify.norms(detached)
    torch.testing.assert_close(
        norms, torch.stack([w.double().square().sum().sqrt().float() for w in detached])
    )
    compiled = torch.compile(lambda *w: carry_squares(w, weights)[0], fullgraph=True, backend="aot_eager")
    found = torch.autograd.grad(compiled(*tensors), tensors)
    for a, b in zip(found, torch.autograd.grad(weighted_squares(tensors, weights), tensors), strict=True):
        torch.testing.assert_close(a, b)
