"""Sparse ensembles: what is kept, their files, the curve of accuracy against sparsity."""

from pathlib import Path

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.studies.compress import sparsify, sparsity_curve
from bayesify.studies.diagnostics import phase_figures


def saved(model: bf.BayesianModule, path: Path) -> int:
    """The size of its file."""
    bf.save(model, path)
    return path.stat().st_size


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
def test_files_of_sparse_ensembles_are_smaller_and_read_back(
    parameterization: str, fill: str, tmp_path: Path
) -> None:
    """A weight of 2,000 entries, of which `kept` stay random: stored are their places, once, and their values."""
    model = sparse_model(parameterization)
    bf.save(model, tmp_path / "dense.safetensors")
    kept = sparsify(model, {"0.weight": torch.rand(50, 40)}, 0.98, fill)
    size = saved(model, tmp_path / "sparse.safetensors")
    dense = (tmp_path / "dense.safetensors").stat().st_size
    means_stay = fill == "mean" and parameterization != "zero_mean"
    own = parameterization in ("weight", "additive")  # a second number for each weight
    before, after = 2000 * (1 + own), (2000 if means_stay else kept) + kept * own + kept
    header = 800  # of names, shapes and checksums of what is stored in another way; the rest is as it was
    assert abs((dense - size) - 4 * (before - after)) < header
    loaded = bf.load(tmp_path / "sparse.safetensors", nn.Sequential(*_fresh()))
    assert_same(model, loaded)
    bf.save(loaded, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").stat().st_size == size


def assert_same(a: bf.BayesianModule, b: bf.BayesianModule) -> None:
    """Equal predictions, KL, mean and draws."""
    x = torch.randn(3, 40)
    p, q = (m.predict(x, 3, generator=torch.Generator().manual_seed(0)).probs for m in (a, b))
    torch.testing.assert_close(p, q, rtol=0, atol=0)
    assert float(a.kl().detach()) == float(b.kl().detach())
    assert torch.equal(a.mean_net()[0].weight, b.mean_net()[0].weight)
    drawn = [m.draw(generator=torch.Generator().manual_seed(1))[0].weight for m in (a, b)]
    assert torch.equal(*drawn)


def test_files_of_sparse_layers_that_were_swapped_to_mean_zero(tmp_path: Path) -> None:
    model = sparse_model()
    bf.zero_mean(model)
    dense = saved(model, tmp_path / "m.safetensors")
    sparsify(model, {"0.weight": torch.rand(50, 40)}, 0.9, "mean")
    assert saved(model, tmp_path / "m.safetensors") < dense - 4 * 2000 * 0.7
    assert_same(model, bf.load(tmp_path / "m.safetensors", nn.Sequential(*_fresh())))


def test_files_of_layers_without_any_weight_left(tmp_path: Path) -> None:
    model = sparse_model()
    assert sparsify(model, {"0.weight": torch.rand(50, 40)}, 2.0) == 0
    assert saved(model, tmp_path / "m.safetensors") < 4 * 2000
    assert_same(model, bf.load(tmp_path / "m.safetensors", nn.Sequential(*_fresh())))


def test_files_of_ensembles_of_sparse_networks(tmp_path: Path) -> None:
    member = bf.VarianceNetwork(where=bf.where.matching("^0"), init_log_alpha=1.0)
    torch.manual_seed(0)
    model = bf.bayesify(nn.Sequential(*_fresh()), bf.DeepEnsemble(member, 2), num_data=100)
    bf.save(model, tmp_path / "dense.safetensors")
    for posterior in model.posterior.posteriors:
        leaf = posterior.random_tensor("0.weight")
        leaf._buffers["noise_gate"] = (torch.rand(50, 40) > 0.9).float()
        leaf._buffers["mean_gate"] = leaf._buffers["noise_gate"].clone()
    bf.save(model, tmp_path / "sparse.safetensors")
    dense, sparse = ((tmp_path / f"{n}.safetensors").stat().st_size for n in ("dense", "sparse"))
    assert dense - sparse > 2 * 4 * 2000 * 0.7
    loaded = bf.load(tmp_path / "sparse.safetensors", nn.Sequential(*_fresh()))
    x = torch.randn(3, 40)
    a, b = (m.predict(x, 4, generator=torch.Generator().manual_seed(0)).probs for m in (model, loaded))
    torch.testing.assert_close(a, b, rtol=0, atol=0)


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
    with pytest.raises(TypeError, match="needs a model by bf.VarianceNetwork, not by method .point."):
        sparsify(bf.bayesify(nn.Sequential(*_fresh()), bf.Point()), {}, 0.0)
    sparsify(model, {"0.weight": torch.rand(50, 40)}, 0.5)
    bf.save(model, tmp_path / "m.safetensors")
    with pytest.raises(ValueError, match=r"0.weight is \(60, 40\), in the file \(50, 40\)"):
        bf.load(tmp_path / "m.safetensors", nn.Sequential(nn.Linear(40, 60), *_fresh()[1:]))
