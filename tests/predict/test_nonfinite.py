"""NaN never gets a class: what `predict` does with inputs and outputs that are not finite."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.predict.nonfinite import NonFinitePredictionError

BAD, GOOD = [2, 4], [0, 1, 3, 5]
INPUTS = r"the inputs of 2 of 6 examples \(counted from 0: 2, 4\) hold NaN or infinite numbers: mend them; predict\("


def spoiled(*shape: int) -> Tensor:
    """Six inputs, two of which are not finite."""
    x = torch.randn(6, *shape, generator=Generator().manual_seed(1))
    x[2].view(-1)[1] = math.nan
    x[4] = math.inf
    return x


def model_of(method: Any = "mc_vi", likelihood: Any = "categorical", out: int = 3) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, out))
    model = bf.bayesify(net, method, likelihood, num_data=10)
    for _ in range({"atmc": 1, "swag": 4}.get(str(method), 0)):
        model.collect()
    if method == "laplace":
        bf.fit(model, [(torch.randn(10, 3), torch.arange(10) % out)], progress=False)
    return model


def seeded(model: bf.BayesianModule, x: Any, **options: Any) -> bf.Predictive:
    return model.predict(x, 4, generator=Generator().manual_seed(0), **options)


METHODS: list[Any] = [*bf.methods.METHODS, bf.DensityPropagation(covariance="outputs")]


@pytest.mark.parametrize("mode", ["ensemble", "deterministic"])
@pytest.mark.parametrize("method", METHODS, ids=str)
def test_inputs_that_are_not_finite(method: Any, mode: str) -> None:
    model, x = model_of(method), spoiled(3)
    with pytest.raises(NonFinitePredictionError, match=INPUTS) as found:
        seeded(model, x, mode=mode)
    assert found.value.examples == BAD
    answer = seeded(model, x, mode=mode, on_nonfinite="nan", keep_samples=True)
    clean = seeded(model, x.nan_to_num(0, 0, 0), mode=mode, keep_samples=True)
    for field in ("probs", "variance", "entropy", "epistemic", "confidence", "agreement"):
        mine, wanted = getattr(answer, field), getattr(clean, field)
        assert torch.equal(mine[GOOD], wanted[GOOD]), field
        assert mine[BAD].isnan().all(), field
    assert answer.label[BAD].tolist() == [-1, -1] and torch.equal(answer.label[GOOD], clean.label[GOOD])
    assert answer.samples[:, BAD].isnan().all() and answer.samples[:, GOOD].isfinite().all()


@pytest.mark.parametrize("likelihood", ["bernoulli", "normal", "heteroscedastic", "student_t", "poisson"])
def test_every_likelihood(likelihood: str) -> None:
    model, x = model_of(likelihood=likelihood, out=2), spoiled(3)
    with pytest.raises(NonFinitePredictionError, match=INPUTS):
        seeded(model, x)
    answer = seeded(model, x, on_nonfinite="nan", keep_samples=True)
    clean = seeded(model, x.nan_to_num(0, 0, 0), keep_samples=True)
    assert torch.equal(answer.mean[GOOD], clean.mean[GOOD]) and answer.mean[BAD].isnan().all()
    assert answer.std[BAD].isnan().all() and answer.interval()[0][BAD].isnan().all()
    assert torch.equal(answer.interval()[1][GOOD], clean.interval()[1][GOOD])
    target = torch.ones_like(clean.mean)
    assert answer.log_prob(target)[BAD].isnan().all()
    assert torch.equal(answer.log_prob(target)[GOOD], clean.log_prob(target)[GOOD])
    if answer.likelihood.task == "regression":
        assert answer.cdf(target)[BAD].isnan().all()
    else:
        assert (answer.label[BAD] == -1).all() and (answer.label[GOOD] >= 0).all()


class Overflowing(nn.Module):
    """NaN for inputs above 2."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + torch.where(x > 2, math.nan, 0.0)


def test_outputs_that_are_nan() -> None:
    model = bf.bayesify(Overflowing(), "mc_vi", num_data=10)
    x = torch.zeros(6, 3)
    x[BAD, 0] = 3
    message = r"the predictions of 2 of 6 examples \(counted from 0: 2, 4\) are NaN, their inputs are not: the network"
    with pytest.raises(NonFinitePredictionError, match=message):
        model.predict(x)
    answer = model.predict(x, on_nonfinite="nan")
    assert answer.probs[BAD].isnan().all() and answer.probs[GOOD].isfinite().all()
    with torch.no_grad():
        model.net.linear.weight.fill_(math.nan)
    with pytest.raises(
        NonFinitePredictionError, match="the predictions of 6 of 6 examples .*weights are NaN"
    ):
        model.predict(x)


@pytest.mark.parametrize("likelihood", ["categorical", "bernoulli"])
def test_a_masked_class_passes(likelihood: str) -> None:
    class Masked(Overflowing):
        def forward(self, x: Tensor) -> Tensor:
            return self.linear(x) + torch.tensor([0.0, 0.0, -math.inf])

    prediction = bf.bayesify(Masked(), "mc_vi", likelihood, num_data=10).predict(torch.randn(4, 3))
    assert (prediction.probs[:, 2] == 0).all()
    for field in (prediction.entropy, prediction.epistemic, prediction.aleatoric):
        assert field.isfinite().all()


def test_whole_numbers_and_masks_pass() -> None:
    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(10, 4), nn.Linear(4, 3)

        def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Tensor:
            scores = torch.zeros(tokens.shape) if mask is None else mask
            return self.head((scores.softmax(1)[..., None] * self.table(tokens)).sum(1))

    model = bf.bayesify(Attending(), "mc_vi", num_data=10)
    tokens = torch.randint(10, (6, 5))
    assert model.predict(tokens).probs.isfinite().all()
    mask = torch.zeros(6, 5)
    mask[:, 3:] = -math.inf
    for action in ("raise", "nan"):
        named, by_place = (
            model.predict(x, generator=torch.Generator().manual_seed(0), on_nonfinite=action).probs
            for x in ({"tokens": tokens, "mask": mask}, (tokens, mask))
        )
        assert named.isfinite().all() and torch.equal(by_place, named)
    mask[2, 0] = math.nan
    with pytest.raises(NonFinitePredictionError, match="the inputs of 1 of 6 examples"):
        model.predict({"tokens": tokens, "mask": mask})


def test_infinite_by_right_passes() -> None:
    """The variance of Student's t with 2 degrees of freedom, and finite numbers whose sum overflows."""
    model = model_of("mc_vi", bf.likelihood("student_t", df=2.0), out=1)
    assert model.predict(torch.randn(6, 3)).variance.isinf().all()
    bounded = bf.bayesify(nn.Sequential(nn.Tanh(), nn.Linear(3, 3)), "mc_vi", num_data=10)
    assert bounded.predict(torch.full((6, 3), 3e38)).probs.isfinite().all()


def test_inputs_with_variance() -> None:
    model, mean = model_of("vdp"), torch.randn(6, 3)
    var = torch.ones(6, 3)
    var[BAD] = math.inf
    with pytest.raises(NonFinitePredictionError, match=INPUTS):
        model.predict(bf.Moments(mean, var))
    answer = model.predict(bf.Moments(mean, var), on_nonfinite="nan")
    assert answer.probs[BAD].isnan().all() and answer.input_noise[GOOD].isfinite().all()


def test_an_input_that_belongs_to_all_examples() -> None:
    class Shifted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x: Tensor, shift: Tensor) -> Tensor:
            return self.linear(x + shift)

    model = bf.bayesify(Shifted(), "mc_vi", num_data=10)
    with pytest.raises(NonFinitePredictionError, match="the inputs of 6 of 6 examples"):
        model.predict((torch.ones(6, 3), torch.tensor(math.nan)))


def test_calibrated_predictions() -> None:
    model = model_of()
    model.calibration = 2.0
    answer = model.predict(spoiled(3), on_nonfinite="nan")
    assert answer.variance[BAD].isnan().all() and answer.entropy[BAD].isnan().all()
    assert answer.label[BAD].tolist() == [-1, -1] and answer.variance[GOOD].isfinite().all()


def test_examples_of_a_loader_are_counted_over_its_batches() -> None:
    model, x = model_of(), torch.cat([torch.zeros(6, 3), spoiled(3)])
    loader = DataLoader(TensorDataset(x, torch.zeros(12, dtype=torch.long)), batch_size=5)
    message = r"the inputs of 1 of a batch of 5 examples \(counted from 0: 8\) hold NaN"
    calls: list[Callable[[], Any]] = [
        lambda: model.predict(loader),
        lambda: model.predict(loader, mode="deterministic"),
        lambda: bf.evaluate(model, loader),
        lambda: bf.evaluate(model, DataLoader(TensorDataset(x[:6], torch.zeros(6).long()), 3), ood=loader),
    ]
    for call in calls:
        with pytest.raises(NonFinitePredictionError, match=message):
            call()
    answer = model.predict(loader, on_nonfinite="nan")
    assert (answer.label == -1).nonzero().flatten().tolist() == [8, 10]


def test_many_examples_are_named_in_part() -> None:
    with pytest.raises(ValueError, match=r"of 30 examples \(counted from 0: 0, 1, .*9 and 20 more\)"):
        model_of().predict(torch.full((30, 3), math.nan))


def test_an_operation_that_refuses_nan() -> None:
    class Solving(Overflowing):
        def forward(self, x: Tensor) -> Tensor:
            if not x.isfinite().all():
                raise RuntimeError("the algorithm failed to converge")
            return self.linear(x)

    model = bf.bayesify(Solving(), "mc_vi", num_data=10)
    with pytest.raises(NonFinitePredictionError, match=INPUTS):
        model.predict(spoiled(3))
    assert model.predict(spoiled(3), on_nonfinite="nan").label[BAD].tolist() == [-1, -1]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        model.predict(torch.zeros(6, 2))


def test_the_choice_is_checked() -> None:
    with pytest.raises(ValueError, match="on_nonfinite='drop' does not exist; choose from raise, nan"):
        model_of().predict(torch.zeros(1, 3), on_nonfinite="drop")


def test_values_are_read_once_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """No draw costs a reading of the device: the number of them does not change how often values are read."""
    counts = []
    read = Tensor.__float__
    for num_draws in (2, 20):
        seen: list[int] = []
        monkeypatch.setattr(Tensor, "__float__", lambda t: seen.append(1) or read(t))  # noqa: B023
        model_of().predict(torch.zeros(4, 3), num_draws, batched=False)
        counts.append(len(seen))
    assert counts[0] == counts[1] <= 3


def test_a_network_may_take_nan_for_missing() -> None:
    class Filling(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x.nan_to_num())

    model = bf.bayesify(Filling(), "point")
    x = torch.randn(4, 3)
    x[1, 2] = math.nan
    with pytest.raises(ValueError, match=r"1 of 4 examples \(counted from 0: 1\)"):
        model.predict(x)
    expected = model.predict(x.nan_to_num()).probs
    assert torch.equal(model.predict(x, on_nonfinite="pass").probs, expected)
    with torch.no_grad():
        model.net.map.weight.fill_(math.nan)
    with pytest.raises(ValueError, match="the predictions of 4 of 4 examples"):
        model.predict(x, on_nonfinite="pass")
