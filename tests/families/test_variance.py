"""The families of variance networks: laws, shared α, bounds, gates."""

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor

from bayesify.families import Family, RandomTensor
from bayesify.families.variance import Additive, Multiplicative, VarianceNormal, ZeroMeanNormal
from bayesify.families.zero_mean import ZeroMeanBernoulli, ZeroMeanUniform
from bayesify.laws.features import log, power

LIKE = torch.tensor([[1.5, -0.7, 0.2], [-2.5, 0.4, 1.1]], dtype=torch.float64)
CASES: list[tuple[type[Family], dict[str, Any]]] = [
    *[(Multiplicative, {"per": per, "init_log_alpha": -1.0}) for per in ("layer", "neuron", "weight")],
    (Additive, {"init_log_alpha": -1.0}),
    (ZeroMeanNormal, {}),
    (ZeroMeanUniform, {}),
    (ZeroMeanBernoulli, {}),
]
IDS = [f"{kind.name}-{options.get('per', '')}" for kind, options in CASES]
every = pytest.mark.parametrize(("kind", "options"), CASES, ids=IDS)
NORMAL = [case for case in CASES if issubclass(case[0], VarianceNormal)]
normal = pytest.mark.parametrize(("kind", "options"), NORMAL, ids=IDS[: len(NORMAL)])


def make(kind: type[Family], options: dict[str, Any], like: Tensor = LIKE) -> RandomTensor:
    return RandomTensor(kind, like, own_centre=True, **options)


@every
def test_draws_have_the_mean_and_the_variance(kind: type[Family], options: dict[str, Any]) -> None:
    """40,000 draws; 6 standard errors fail once in 5e8 numbers."""
    q = make(kind, options).requires_grad_(False).distribution()
    n = 40_000
    w = q.rsample(n, torch.Generator().manual_seed(0))
    assert ((w.mean(0) - q.mean).abs() <= 6 * (q.variance / n).sqrt()).all()
    fourth = {ZeroMeanUniform: 9 / 5, ZeroMeanBernoulli: 1.0}.get(kind, 3.0)
    error = 6 * q.variance * math.sqrt((fourth - 1 + 1e-3) / n)
    assert ((w.var(0) - q.variance).abs() <= error).all()


@normal
def test_densities_are_scipys(kind: type[Family], options: dict[str, Any]) -> None:
    q = make(kind, options).requires_grad_(False).distribution()
    w = q.rsample(5, torch.Generator().manual_seed(0))
    law = stats.norm(q.mean.numpy(), q.variance.sqrt().numpy())
    torch.testing.assert_close(q.log_prob(w), torch.from_numpy(law.logpdf(w.numpy())))
    assert float(q.neg_entropy()) == pytest.approx(-law.entropy().sum())


def test_the_uniform_family_is_scipys() -> None:
    q = make(ZeroMeanUniform, {}).requires_grad_(False).distribution()
    law = stats.uniform(-q.scale.numpy(), 2 * q.scale.numpy())
    w = q.rsample(5, torch.Generator().manual_seed(0))
    torch.testing.assert_close(q.log_prob(w), torch.from_numpy(law.logpdf(w.numpy())))
    torch.testing.assert_close(q.variance, torch.from_numpy(law.var()))
    assert float(q.neg_entropy()) == pytest.approx(-law.entropy().sum())
    assert q.expectation(log(1)) == -1 and q.expectation(power(2)) == pytest.approx(1 / 3)


def test_bernoulli_weights_have_two_values() -> None:
    q = make(ZeroMeanBernoulli, {}).requires_grad_(False).distribution()
    w = q.rsample(200, torch.Generator().manual_seed(0))
    torch.testing.assert_close(w.abs(), LIKE.abs().expand_as(w))
    assert ((w > 0).any(0) & (w < 0).any(0)).all()


@normal
def test_gradients_by_finite_differences(kind: type[Family], options: dict[str, Any]) -> None:
    module = make(kind, options)
    noise = module.distribution().noise((2,), torch.Generator().manual_seed(0))
    names, parameters = zip(*module.named_parameters(), strict=True)

    def outputs(*given: Tensor) -> tuple[Tensor, ...]:
        free = dict(zip(names, given, strict=True))
        q = module.family(free.pop("centre"), **free, **dict(module.named_buffers()), **module.numbers)
        return q.transform(noise), q.mean, q.variance, q.neg_entropy()

    assert torch.autograd.gradcheck(outputs, parameters)


def test_the_four_parameterizations_coincide() -> None:
    """At one α for all weights they are one distribution: moments, draws, densities."""
    log_alpha = -1.0
    qs = [make(kind, options).requires_grad_(False).distribution() for kind, options in CASES[:3]]
    additive = make(*CASES[3])
    with torch.no_grad():
        additive.log_std.copy_(0.5 * log_alpha + LIKE.abs().log())
    qs.append(additive.requires_grad_(False).distribution())
    value = torch.randn_like(LIKE)
    noise = torch.randn(4, *LIKE.shape, dtype=torch.float64)
    for q in qs[1:]:
        torch.testing.assert_close(q.mean, qs[0].mean)
        torch.testing.assert_close(q.variance, qs[0].variance)
        torch.testing.assert_close(q.log_prob(value), qs[0].log_prob(value))
        torch.testing.assert_close(q.ratio.expand(q.shape), qs[0].ratio.expand(q.shape))
    for q in qs[1:3]:
        torch.testing.assert_close(q.transform(noise), qs[0].transform(noise))


@pytest.mark.parametrize(
    ("shape", "options", "expected"),
    [
        ((6, 5), {"per": "layer"}, ()),
        ((6, 5), {"per": "neuron"}, (6, 1)),
        ((6, 5, 3, 3), {"per": "neuron"}, (6, 1, 1, 1)),
        ((6, 5, 3, 3), {"per": "weight"}, (6, 5, 3, 3)),
        ((6, 5, 3), {"per": "neuron", "output_dim": 1}, (1, 5, 1)),
        ((6, 5, 3), {"per": "neuron", "output_dim": 1, "groups": 2}, (2, 5, 1)),
        ((6,), {"per": "neuron"}, (6,)),
        ((), {"per": "neuron"}, ()),
    ],
)
def test_where_alpha_is_shared(shape: tuple[int, ...], options: Any, expected: tuple[int, ...]) -> None:
    module = make(Multiplicative, options, torch.randn(shape))
    assert module.log_alpha.shape == expected
    assert module.variance.shape == shape


def test_alphas_of_a_grouped_transposed_convolution_belong_to_outputs() -> None:
    """Inputs 0, 1, 2 feed the first group's outputs, 3, 4, 5 the second's."""
    module = make(Multiplicative, {"per": "neuron", "output_dim": 1, "groups": 2}, torch.ones(6, 2, 1))
    with torch.no_grad():
        module.log_alpha.copy_(torch.tensor([[0.0, 1.0], [2.0, 3.0]])[..., None])
    log_variance = module.variance.log()[..., 0]
    torch.testing.assert_close(log_variance, torch.tensor([[0.0, 1.0]] * 3 + [[2.0, 3.0]] * 3))


def test_beyond_a_bound_only_the_way_back_is_open() -> None:
    module = make(Multiplicative, {"init_log_alpha": 0.0, "max_log_alpha": 0.0})
    with torch.no_grad():
        module.log_alpha.fill_(0.5)
    torch.testing.assert_close(module.variance, LIKE.square())
    (-module.variance.sum()).backward()  # descent would raise α
    assert module.log_alpha.grad == 0
    module.log_alpha.grad = None
    module.variance.sum().backward()
    assert module.log_alpha.grad > 0


@normal
def test_gates(kind: type[Family], options: dict[str, Any]) -> None:
    """g = 0: mean zero at the same variance. h = 0: the mean alone. Per weight or for all."""
    module = make(kind, options).requires_grad_(False)
    variance, mean = module.variance.clone(), module.mean.clone()
    module.mean_gate.zero_()
    assert (module.mean == 0).all()
    torch.testing.assert_close(module.variance, variance)
    keep = (LIKE > 0).double()
    module._buffers["noise_gate"] = keep
    torch.testing.assert_close(module.variance, variance * keep)
    assert (module.rsample(3)[:, keep == 0] == 0).all()
    module.mean_gate.fill_(1.0)
    torch.testing.assert_close(module.rsample()[keep == 0], mean[keep == 0])


def test_errors() -> None:
    with pytest.raises(ValueError, match="per='row' does not exist; choose from layer, neuron, weight"):
        make(Multiplicative, {"per": "row"})
    with pytest.raises(ValueError, match="init_log_alpha=1.0 must lie between min_log_alpha=-20.0 and"):
        make(Multiplicative, {"init_log_alpha": 1.0, "max_log_alpha": 0.0})
