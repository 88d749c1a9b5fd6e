"""Saliency, infidelity and sensitivity, against captum and closed forms."""

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.studies.explain import infidelity, probability_of, saliency, sensitivity

captum = pytest.importorskip("captum.metrics")


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def quiet(*arguments: object, **options: object) -> Tensor:
    """Of captum, without its warnings about gradients."""
    function, *rest = arguments
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return function(*rest, **options)  # type: ignore[operator]


def test_saliency_is_the_gradient_of_the_averaged_probability() -> None:
    model = bf.bayesify(network(), bf.DeepEnsemble(num_members=3))
    x = torch.randn(5, 6)
    label = model.predict(x).label
    found = saliency(probability_of(model, label), x)
    leaf = x.clone().requires_grad_(True)
    members = model.posterior.nets(model.net)
    probs = torch.stack([member(leaf).softmax(1) for member in members]).mean(0)
    probs.gather(1, label[:, None]).sum().backward()
    assert torch.allclose(found, leaf.grad, atol=1e-6)
    assert torch.allclose(
        saliency(probability_of(model, label), x, absolute=True), leaf.grad.abs(), atol=1e-6
    )


def test_draws_are_the_same_at_every_call_and_parameters_get_no_gradient() -> None:
    model = bf.bayesify(network(), bf.MonteCarloVI(init_std=0.5), num_data=10)
    x = torch.randn(4, 6)
    score = probability_of(model, torch.zeros(4, dtype=torch.long), num_draws=3)
    assert torch.equal(score(x), score(x))
    saliency(score, x)
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("normalise", [False, True])
def test_infidelity_equals_captum(normalise: bool) -> None:
    net, x = network().double(), torch.randn(5, 6).double()
    label = torch.randint(3, (5,))
    score = probability_of(net, label)
    phi = saliency(score, x)
    draws = torch.Generator().manual_seed(3)
    ours = infidelity(score, x, phi, 20, 0.3, torch.Generator().manual_seed(3), normalise)
    noises = [0.3 * torch.randn(5, 6, generator=draws, dtype=torch.float64) for _ in range(20)]

    def perturb(inputs: Tensor) -> tuple[Tensor, Tensor]:
        noise = torch.stack(noises, 1).reshape(inputs.shape)  # captum repeats each example 20 times
        return noise, inputs - noise

    theirs = quiet(
        captum.infidelity, lambda z: net(z).softmax(1), perturb, x, phi,
        target=label, n_perturb_samples=20, normalize=normalise,
    )  # fmt: skip
    assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-9)


def test_the_gradient_of_a_linear_score_is_perfect() -> None:
    weight, x = torch.randn(6), torch.randn(4, 6)
    phi = saliency(lambda z: z @ weight, x)
    assert torch.allclose(phi, weight.expand(4, 6))
    assert float(infidelity(lambda z: z @ weight, x, phi).max()) < 1e-9
    assert float(infidelity(lambda z: z @ weight, x, 2 * phi, normalise=True).max()) < 1e-9
    assert float(sensitivity(lambda z: saliency(lambda s: s @ weight, z), x).max()) < 1e-6


def test_sensitivity_equals_captum() -> None:
    net, x = network().double(), torch.randn(5, 6).double()
    label = torch.randint(3, (5,))

    def explain(z: Tensor) -> Tensor:
        wanted = label if len(z) == 5 else label.repeat_interleave(len(z) // 5)
        return saliency(probability_of(net, wanted), z)

    ours = sensitivity(explain, x, 15, 0.05, torch.Generator().manual_seed(3))
    draws = torch.Generator().manual_seed(3)
    moves = [0.05 * (2 * torch.rand(5, 6, generator=draws, dtype=torch.float64) - 1) for _ in range(15)]

    def perturb(inputs: object, radius: float) -> tuple[Tensor, ...]:
        (z,) = inputs if isinstance(inputs, tuple) else (inputs,)
        return (z + torch.stack(moves, 1).reshape(z.shape),)  # each example 15 times

    def theirs_explain(inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return (explain(inputs[0]),)

    theirs = quiet(captum.sensitivity_max, theirs_explain, (x,), perturb, n_perturb_samples=15)
    assert torch.allclose(ours, theirs, rtol=1e-6)
    plain = sensitivity(explain, x, 15, 0.05, torch.Generator().manual_seed(3), relative=False)
    assert torch.allclose(plain, ours * explain(x).norm(dim=1))


def test_an_explanation_of_nothing_is_not_divided_by_zero() -> None:
    assert sensitivity(torch.zeros_like, torch.randn(2, 3)).tolist() == [0, 0]
    zero = torch.zeros(2, 3)
    assert infidelity(lambda z: z.sum(1), torch.randn(2, 3), zero, normalise=True).isfinite().all()


def test_other_likelihoods_need_a_score() -> None:
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), "bernoulli")
    with pytest.raises(ValueError, match="give a score of your own"):
        probability_of(model, torch.zeros(2).long())
