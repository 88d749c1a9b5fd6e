"""Attacks against the adversarial-robustness-toolbox on a plain network, and against random networks."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.studies import attacks

NORM = {"linf": np.inf, "l2": 2}


def network(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    conv = (nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Softplus(), nn.Flatten())
    return nn.Sequential(*conv, nn.Dropout(0.5), nn.Linear(4 * 36, 5)).eval()


def batch(num: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.rand(num, 1, 8, 8, generator=generator)
    return x, torch.randint(5, (num,), generator=generator)


def classifier(net: nn.Module) -> Any:
    art = pytest.importorskip("art.estimators.classification")
    return art.PyTorchClassifier(
        model=net, loss=nn.CrossEntropyLoss(), input_shape=(1, 8, 8), nb_classes=5, clip_values=(0.0, 1.0)
    )


def by_art(attack: Any, x: Tensor, y: Tensor) -> Tensor:
    return torch.from_numpy(attack.generate(x=x.numpy(), y=nn.functional.one_hot(y, 5).float().numpy()))


@pytest.mark.parametrize("targeted", [False, True])
def test_fgsm_against_art(targeted: bool) -> None:
    evasion = pytest.importorskip("art.attacks.evasion")
    net, (x, y) = network(), batch()
    reference = evasion.FastGradientMethod(classifier(net), eps=0.1, targeted=targeted)
    torch.testing.assert_close(attacks.fgsm(net, x, y, 0.1, targeted=targeted), by_art(reference, x, y))


@pytest.mark.parametrize("targeted", [False, True])
def test_fast_sign_against_art(targeted: bool) -> None:
    evasion = pytest.importorskip("art.attacks.evasion")
    net, (x, y) = network(), batch()
    options = {"eps": 0.2, "eps_step": 0.03, "max_iter": 9, "targeted": targeted, "verbose": False}
    reference = evasion.BasicIterativeMethod(classifier(net), **options)
    mine = attacks.fast_sign(net, x, y, 0.03, 9, eps=0.2, targeted=targeted)
    torch.testing.assert_close(mine, by_art(reference, x, y), atol=1e-6, rtol=0)


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_pgd_against_art(norm: str, targeted: bool) -> None:
    evasion = pytest.importorskip("art.attacks.evasion")
    net, (x, y) = network(), batch()
    options = {"norm": NORM[norm], "eps": 0.5, "eps_step": 0.12, "max_iter": 8, "verbose": False}
    reference = evasion.ProjectedGradientDescentPyTorch(classifier(net), targeted=targeted, **options)
    mine = attacks.pgd(net, x, y, 0.5, 0.12, 8, norm, random_start=False, targeted=targeted)
    torch.testing.assert_close(mine, by_art(reference, x, y), atol=1e-5, rtol=0)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_random_starts_fill_the_ball(norm: str) -> None:
    """In d = 64 dimensions the L2 radius of a uniform point is eps · u^{1/64}."""
    net, (x, y) = network(), batch(200)
    options = {"step": 1e-9, "num_steps": 1, "eps": 0.3, "norm": norm, "bounds": None}
    start, end = attacks.iterates(net, x, y, random_start=True, **options)
    shift = (start - x).flatten(1)
    size = shift.abs().amax(1) if norm == "linf" else shift.norm(dim=1)
    assert (size <= 0.3 + 1e-6).all() and size.mean() > 0.28
    assert ((end - start).abs() <= 1e-6).all()


def test_bounds_hold_and_lie_outside_the_graph() -> None:
    """At the bounds the gradient is that of the network: the clamp does not stop it."""
    net, (_, y) = network(), batch()
    x = torch.zeros(12, 1, 8, 8)
    assert (attacks.input_gradient(net, x, y) != 0).any(dim=(1, 2, 3)).all()
    moved = attacks.fgsm(net, x, y, 0.4)
    assert moved.min() >= 0 and moved.max() <= 1 and (moved > 0).any()
    assert attacks.fgsm(net, x, y, 0.4, bounds=None).min() < 0


def variance_model() -> bf.BayesianModule:
    method = bf.VarianceNetwork(init_log_alpha=0.0, where=bf.where.linear)
    return bf.bayesify(network(), method, num_data=12)


def test_the_gradient_of_a_random_network_is_an_expectation() -> None:
    """The mean over many draws does not depend on the seed; of one draw it does. Parameters stay without gradients."""
    model, (x, y) = variance_model(), batch()
    model.train()

    def gradient(num_draws: int, seed: int, average: str = "loss") -> Tensor:
        return attacks.input_gradient(model, x, y, num_draws, average, torch.Generator().manual_seed(seed))

    one, other = gradient(1, 0), gradient(1, 1)
    many, again = gradient(400, 0), gradient(400, 1)
    assert (many - again).norm() < 0.15 * (one - other).norm()
    assert torch.equal(gradient(3, 7), gradient(3, 7))
    assert (gradient(400, 0, "probs") - many).norm() > 0.01 * many.norm()
    assert all(p.grad is None for p in model.parameters()) and model.training
    assert model.net[1].num_batches_tracked == 0


def test_probs_averages_the_prediction() -> None:
    """The gradient of −log mean p, by plain autograd over the same draws."""
    model, (x, y) = variance_model(), batch()
    model.eval()
    mine = attacks.input_gradient(model, x, y, 5, "probs", torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    z = x.clone().requires_grad_(True)
    probs = torch.stack([model(z, generator=generator).softmax(-1) for _ in range(5)]).mean(0)
    loss = -probs.gather(1, y[:, None]).log().sum()
    torch.testing.assert_close(mine, torch.autograd.grad(loss, z)[0], atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize(
    "method",
    [
        bf.Point(),
        bf.MonteCarloVI(),
        bf.DeepEnsemble(num_members=2),
        bf.DeepEnsemble(bf.VarianceNetwork(where=bf.where.linear), num_members=2),
    ],
    ids=["point", "mc_vi", "deep_ensemble", "variance_ensemble"],
)
def test_curves_of_every_kind_of_model(method: Any) -> None:
    model, (x, y) = bf.bayesify(network(), method, num_data=12), batch()
    rows = attacks.attack_curve(model, x, y, step=0.05, num_steps=6, num_draws=4, eval_draws=4)
    assert [row.iteration for row in rows] == list(range(7))
    assert rows[-1].success_rate >= rows[0].success_rate
    assert all(0 <= row.entropy <= math.log(5) + 1e-6 for row in rows)
    assert rows[0].distance == 0 and 0 < rows[-1].distance <= 0.3 + 1e-6


def test_a_targeted_attack_reaches_its_target() -> None:
    net, (x, _) = network(), batch()
    target = torch.full((12,), 3)
    rows = attacks.attack_curve(net, x, target, targeted=True, step=0.05, num_steps=30)
    assert rows[0].success_rate < 0.5 < 0.9 < rows[-1].success_rate
    assert rows[-1].confidence > rows[0].confidence


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"norm": "l1"}, "norm='l1' does not exist; choose from linf, l2"),
        ({"step": 0.0}, "step=0.0 must be a number above 0"),
        ({"eps": -1.0}, "eps=-1.0 must be a number above 0"),
        ({"num_steps": 0}, "num_steps=0 must be a whole number of at least 1"),
        ({"num_draws": 0}, "num_draws=0 must be a whole number of at least 1"),
        ({"average": "logits"}, "average='logits' does not exist; choose from loss, probs"),
        ({"random_start": True}, "random_start=True needs a ball to start in: give eps"),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    net, (x, y) = network(), batch(2)
    with pytest.raises(ValueError, match=message):
        list(attacks.iterates(net, x, y, **{"step": 0.1, "num_steps": 1, **options}))
