"""Sparse ensembles: what is kept, their files, the curve of accuracy against sparsity."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.compress import load_sparse, save_sparse, sparsify, sparsify_by_log_alpha, sparsity_curve
from bayesify.diagnostics import log_alpha, phase_figures


def sparse_model(parameterization: str = "layer") -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(40, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 3))
    options = {} if parameterization == "zero_mean" else {"init_log_alpha": 1.0}
    method = bf.VarianceNetwork(parameterization=parameterization, where=bf.where.matching("^0"), **options)
    return bf.bayesify(net, method, num_data=100)


@pytest.mark.parametrize("fill", ["zero", "mean"])
def test_sparsify_zeroes_or_fixes_the_weights_below_the_threshold(fill: str) -> None:
    model = sparse_model()
    scores = {"0.weight": torch.rand(50, 40)}
    mean = model.mean_net()[0].weight
    assert sparsify(model, scores, 0.9, fill) == int((scores["0.weight"] > 0.9).sum())
    cut = scores["0.weight"] <= 0.9
    drawn = torch.stack([model.draw()[0].weight for _ in range(3)])
    assert torch.equal(drawn[:, cut], (0 * mean if fill == "zero" else mean)[cut].expand(3, -1))
    assert (drawn[:, ~cut].std(0) > 0).all()
    assert float(model.kl().detach()) > 0


@pytest.mark.parametrize("parameterization", ["layer", "neuron", "weight", "additive", "zero_mean"])
@pytest.mark.parametrize("fill", ["zero", "mean"])
def test_files_of_sparse_ensembles(parameterization: str, fill: str, tmp_path: Path) -> None:
    model = sparse_model(parameterization)
    bf.save(model, tmp_path / "dense.safetensors")
    kept = sparsify(model, {"0.weight": torch.rand(50, 40)}, 0.98, fill)
    size = save_sparse(model, tmp_path / "sparse.safetensors")
    dense = (tmp_path / "dense.safetensors").stat().st_size
    if (
        fill == "zero"
    ):  # 2,000 weights of four bytes (twice with σ or α for each) against `kept` of them and places
        numbers = 2 if parameterization in ("weight", "additive") else 1
        assert dense - size > 4 * (2000 * numbers - kept * (numbers + 1)) - 700
    loaded = load_sparse(
        tmp_path / "sparse.safetensors", sparse_model(parameterization).net.__class__(*_fresh())
    )
    x = torch.randn(3, 40)
    a, b = (m.predict(x, 3, generator=torch.Generator().manual_seed(0)).probs for m in (model, loaded))
    torch.testing.assert_close(a, b)


def _fresh() -> list[nn.Module]:
    return [nn.Linear(40, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Linear(50, 3)]


def test_the_curve_leaves_the_model_as_it_was() -> None:
    model = sparse_model()
    x, y = torch.randn(30, 40), torch.randint(3, (30,))
    before = {k: v.clone() for k, v in model.state_dict().items()}
    points = sparsity_curve(model, {"0.weight": torch.rand(50, 40)}, [(x, y)], num_draws=3)
    assert [round(p.sparsity, 3) for p in points] == [0.0, 0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995]
    assert points[-1].compression == pytest.approx(200)
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert phase_figures.sparsity_figure({"zero": points}, full=0.9) is not None


def test_errors_of_sparse_ensembles(tmp_path: Path) -> None:
    model = sparse_model()
    with pytest.raises(ValueError, match="fill='one' does not exist; choose from zero, mean"):
        sparsify(model, {}, 0.0, "one")
    with pytest.raises(ValueError, match="scores: 'x' is no random weight; there are 0.weight"):
        sparsify(model, {"x": torch.ones(1)}, 0.0)
    bf.save(model, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match="is no file of save_sparse: read it with bf.load"):
        load_sparse(tmp_path / "m.safetensors", nn.Sequential(*_fresh()))


def test_sparse_variational_dropout_zeroes_weights() -> None:
    method = bf.SparseVariationalDropout()
    assert method.parameterization == "additive"
    model = bf.bayesify(nn.Sequential(*_fresh()), method, num_data=10)
    share = torch.cat([(a <= 3).flatten() for a in log_alpha(model).values()])
    assert sparsify_by_log_alpha(model, 3.0) == int(share.sum())
