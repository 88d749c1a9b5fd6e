"""One-pass variances beside drawn weights, where it is known which are right."""

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.studies.diagnostics import MomentCheck, moment_check, relative_width
from bayesify.studies.diagnostics.moment_verdict import verdict


def images(num: int = 24) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = 1 + torch.rand(num, 1, 10, 10, generator=generator)  # positive: positions share the noise of a filter
    return x, torch.randint(3, (num,), generator=generator)


def pooled(**options: Any) -> bf.BayesianModule:
    """Convolutions and global average pooling: all positions of a channel share its weights' noise."""
    torch.manual_seed(1)
    convolved = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 6, 3), nn.ReLU())
    net = nn.Sequential(*convolved, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))
    convolutions = bf.where.matching(r"^[02]\.")  # the last layer's own noise would cover up the difference
    return bf.bayesify(
        net, bf.DensityPropagation(where=convolutions, **{"covariance": "outputs", **options}), num_data=100
    )


def dense(method: bf.methods.Method | None = None, outputs: int = 2, **options: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, outputs))
    return bf.bayesify(net, method or bf.DensityPropagation(covariance="outputs"), num_data=100, **options)


def found(**changes: Any) -> MomentCheck:
    """A check in which all is right, with changes."""
    right = MomentCheck(1.0, 0.01, 0.9, 1.1, 0.0, 0.0, 0.9, 0.89, None, None, 0.05, 200, 64)
    return dataclasses.replace(right, **changes)


def said(check: MomentCheck, **flags: bool) -> str:
    posterior = dense(
        bf.DensityPropagation(covariance="outputs", logits="probe" if flags.get("probed") else "bound")
    ).posterior
    return "\n".join(verdict(check, posterior, flags.get("is_swept", True)))


def test_the_diagonal_form_is_too_narrow_behind_average_pooling_and_the_default_right() -> None:
    """Var mean of 36 equal positions is that of one, by entry 36 times smaller; 400 draws: 7 % for one output."""
    batch = images()
    wrong = moment_check(pooled(covariance="diagonal"), [batch], num_draws=400)
    right = moment_check(pooled(), [batch], num_draws=400)
    assert wrong.ratio < 0.1 and wrong.verdict.startswith("too narrow")
    assert "covariance='outputs'" in wrong.verdict
    assert right.ratio == pytest.approx(1, abs=4 * right.error) and right.error < 0.1
    assert right.verdict.startswith("right") and right.low < right.ratio < right.high
    assert right.mean_error < 0.2 and right.probs_error is not None and right.probs_error < 0.01


def test_a_linear_model_is_exact() -> None:
    """One linear layer: the pass is exact, and the ratio's error is that of the draws' variance, √(2/n) at most."""
    torch.manual_seed(0)
    model = bf.bayesify(
        nn.Linear(4, 3),
        bf.DensityPropagation(covariance="outputs"),
        bf.likelihood("normal", std=1.0),
        num_data=10,
    )
    check = moment_check(model, torch.randn(30, 4), num_draws=1000)
    assert abs(check.ratio - 1) < 4 * check.error and 0.005 < check.error < 0.045
    assert check.num_draws == 1000 and check.num_examples == 30
    assert check.mean_error < 0.15 and check.probs_error is None and check.rmse is None
    assert check.width == pytest.approx(0.05, rel=0.2) == relative_width(model)


def test_it_leaves_the_model_and_the_random_state_as_they_are() -> None:
    model = dense().train()
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    first, second = (moment_check(model, torch.ones(3, 4), num_draws=20) for _ in range(2))
    assert first == second
    assert model.training and torch.equal(state, torch.get_rng_state())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_batches_of_every_kind_give_the_same_ratio() -> None:
    x, y = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 2

    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = dense().net

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x)

    named = bf.bayesify(Named(), bf.DensityPropagation(covariance="outputs"), num_data=100)
    checks = [
        moment_check(model, loader, num_draws=20)
        for model, loader in (
            (dense(), x),
            (dense(), [x]),
            (dense(), [(x, y)]),
            (named, [{"x": x, "labels": y}]),
            (named, {"x": x}),
            (dense(), [(bf.Moments(x, torch.ones_like(x)), y)]),
        )
    ]
    for check in checks[1:]:
        assert check.ratio == pytest.approx(checks[0].ratio, rel=1e-4)
    assert [check.accuracy is None for check in checks] == [True, True, False, False, True, False]


def test_only_the_first_examples_are_looked_at() -> None:
    x, y = torch.randn(50, 4), torch.arange(50) % 2
    loader = [(x[:20], y[:20]), (x[20:], y[20:]), ("never", "reached")]
    assert moment_check(dense(), loader, num_draws=20, num_examples=30).num_examples == 30
    assert moment_check(dense(), [(x, y)], num_draws=20, num_examples=100).num_examples == 50


def test_a_regression_has_an_rmse_beside_that_of_one_draw() -> None:
    """E (f − y)² of a draw is that of the mean plus the variance."""
    x = torch.randn(40, 4, generator=torch.Generator().manual_seed(0))
    model = dense(
        bf.DensityPropagation(covariance="outputs", init_std=0.2), likelihood=bf.likelihood("normal", std=1.0)
    )
    with torch.no_grad():
        output = model.eval()(x)
    check = moment_check(model, [(x, output.mean)], num_draws=400)
    assert check.accuracy is None and check.rmse is not None and check.rmse < 0.01
    assert check.draw_rmse == pytest.approx(output.var.mean().sqrt().item(), rel=0.15)
    assert "rmse, of one draw" in str(check) and "single draws are much worse" in check.verdict


def test_a_head_of_its_own_for_the_noise() -> None:
    model = dense(outputs=2, likelihood="heteroscedastic")
    check = moment_check(model, [(torch.randn(10, 4), torch.randn(10, 1))], num_draws=40)
    assert check.ratio == pytest.approx(1, abs=5 * check.error + 0.05) and check.rmse is not None


def test_an_ensemble_is_looked_at_member_by_member() -> None:
    model = dense(bf.DeepEnsemble(bf.DensityPropagation(), 2))
    check = moment_check(model, [(torch.randn(10, 4), torch.arange(10) % 2)], num_draws=200)
    assert check.ratio == pytest.approx(1, abs=5 * check.error + 0.05) and check.num_examples == 10


def test_the_verdict_names_what_to_do() -> None:
    assert said(found()) == "right: variances of one pass are 1.00 of those of drawn weights"
    assert "on average, but single outputs are off by" in said(found(low=0.3, high=2.5))
    assert "unclear: 0.80 ± 0.10 may be 1" in said(found(ratio=0.8, error=0.1))
    wide = said(found(ratio=0.5, width=0.3))
    assert wide.startswith("too narrow: variances of one pass are 0.50") and "stds 29% too small" in wide
    assert "σ / rms(w) 0.3" in wide and "bf.MonteCarloVI" in wide and "model.draw()" in wide
    assert "stds 41% too large" in said(found(ratio=2.0))
    assert "was not taken" in said(found(ratio=0.5), is_swept=False)
    assert "the means are off by 0.80 std" in said(found(mean_error=0.8))
    assert "bf.DensityPropagation(logits='probe')" in said(found(draw_accuracy=0.2))
    assert "smaller kl_weight" in said(found(draw_accuracy=0.2), probed=True)
    assert "rmse 2 beside 1" in said(found(accuracy=None, draw_accuracy=None, rmse=1.0, draw_rmse=2.0))


def test_every_form_has_a_remedy_of_its_own() -> None:
    off = found(ratio=0.5)

    def remedy(model: bf.BayesianModule, is_swept: bool) -> str:
        return verdict(off, model.posterior, is_swept)[0]

    diagonal = dense(bf.DensityPropagation(covariance="diagonal"))
    said_of_diagonal = remedy(diagonal, False)
    assert "covariance='outputs'" in said_of_diagonal and "bf.moments.fit_gains" in said_of_diagonal
    bf.moments.fit_gains(diagonal, torch.ones(2, 4), num_draws=2)
    assert "Its gains do not fit these inputs" in remedy(diagonal, False)
    unswept = remedy(dense(), False)
    assert "was not taken" in unswept and "bf.moments.fit_gains" in unswept and "model.draw()" in unswept
    for wide in (
        remedy(dense(), True),
        remedy(dense(bf.DensityPropagation(covariance="full")), True),
    ):
        assert "too wide for linear propagation" in wide and "fit_gains" not in wide


def test_it_prints_as_a_table() -> None:
    lines = str(moment_check(pooled(), [images()], num_draws=20)).splitlines()
    assert lines[0] == "one pass against 20 draws of the weights, 24 examples"
    for name in ("variance / drawn variance", "5 to 95 %", "error of probabilities", "accuracy, of one draw"):
        assert any(line.strip().startswith(name) for line in lines)


def test_bad_input() -> None:
    for method in (bf.MonteCarloVI(), bf.Point()):
        with pytest.raises(TypeError, match="it is for bf.DensityPropagation, or bf.DeepEnsemble of it"):
            moment_check(dense(method), [torch.ones(2, 4)])
    with pytest.raises(ValueError, match="the loader is empty"):
        moment_check(dense(), [])
    with pytest.raises(ValueError, match="num_draws=5 must be a whole number of at least 20"):
        moment_check(dense(), [torch.ones(2, 4)], num_draws=5)
    torch.manual_seed(0)
    behind = nn.Sequential(nn.Linear(4, 4), nn.Threshold(1e9, 1.0), nn.Linear(4, 2))
    model = bf.bayesify(behind, bf.DensityPropagation(where=bf.where.input), num_data=10)
    with pytest.raises(ValueError, match="no random weight reaches them"):
        moment_check(model, [torch.ones(2, 4)], num_draws=20)
