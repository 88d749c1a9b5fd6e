"""Noise of the inputs beside that of the weights, on a trained network."""

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import load

DRAWS = 4000
STD = 0.3


def trained() -> tuple[bf.BayesianModule, Tensor]:
    """A small network of the digits, trained by its covariance; and test images."""
    torch.manual_seed(0)
    part = load("digits").train
    x, y = (part.inputs.flatten(1) - 0.3) / 0.4, part.targets
    net = nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10))
    method = bf.DensityPropagation(covariance="outputs", prior="fan_in")
    model = bf.bayesify(net, method, num_data=len(x))
    optimizer = model.optimizer(lr=0.01)
    for epoch in range(8):
        for rows in torch.randperm(1000, generator=torch.Generator().manual_seed(epoch)).split(100):
            optimizer.zero_grad(set_to_none=True)
            model.loss(x[rows], y[rows]).total.backward()
            optimizer.step()
    return model.eval(), x[1000:1020]


def test_both_parts_are_those_of_draws() -> None:
    """4,000 draws know a variance to √(2/4000) = 2.2 %, and all outputs share them: 5 standard errors are 11 %, and
    linearisation leaves out a few per cent more. What noise adds is a difference of two variances, of which it is a
    third or more: up to three times that error, with the errors of both."""
    model, x = trained()
    generator = torch.Generator().manual_seed(1)
    noisy = x + STD * torch.randn(DRAWS, *x.shape, generator=generator)
    with torch.no_grad():
        weights = model.posterior.draw(0, DRAWS, generator)

        def output(w: dict[str, Tensor], value: Tensor) -> Tensor:
            return torch.func.functional_call(model.net, w, (value,))

        of_weights = torch.vmap(output, (0, None))(weights, x).var(0)
        of_inputs = model.net(noisy).var(0)
        of_both = torch.vmap(output)(weights, noisy).var(0)
        found = bf.moments.sources(model, bf.Moments(x, torch.full_like(x, STD**2)))

    def ratio(one: Tensor, other: Tensor) -> float:
        return float((one / other).log().mean().exp())

    assert (of_inputs / of_both).median() > 1 / 3
    assert ratio(found.weights, of_weights) == pytest.approx(1, abs=0.12)
    assert ratio(found.inputs, of_inputs) == pytest.approx(1, abs=0.15)
    assert ratio(found.weights + found.inputs, of_both) == pytest.approx(1, abs=0.12)
    assert ratio(found.inputs, of_both - of_weights) == pytest.approx(1, abs=0.3)
    prediction = model.predict(bf.Moments(x, torch.full_like(x, STD**2)), num_draws=2000)
    parts = prediction.aleatoric + prediction.epistemic + prediction.input_noise
    torch.testing.assert_close(parts, prediction.entropy)
    assert prediction.input_noise.mean() > 0 and prediction.epistemic.mean() > 0
