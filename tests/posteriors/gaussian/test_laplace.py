"""Laplace's approximation against exact posteriors, and its curvature against autograd's."""

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import bayesify as bf
from bayesify.engine.conclusion import check_conclusion
from bayesify.posteriors.base import TrainingData
from bayesify.posteriors.gaussian.curvature import MOST_DENSE, curvature
from bayesify.posteriors.gaussian.precision import Precision

STD, DELTA = 0.4, 1.7


def loader(x: Tensor, y: Tensor, size: int = 7) -> DataLoader:
    return DataLoader(TensorDataset(x, y), size)


def line(num_data: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs, targets, and the inputs with a column of ones, for w and b together."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_data, 3, generator=generator, dtype=torch.float64)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]).double() + 0.3
    y = y + STD * torch.randn(num_data, 1, generator=generator, dtype=torch.float64)
    return x, y, torch.cat([x, torch.ones(num_data, 1).double()], 1)


def posterior(x: Tensor, y: Tensor, delta: float, std: float) -> tuple[Tensor, Tensor]:
    """Mean and covariance of Bayesian linear regression."""
    cov = (x.mT @ x / std**2 + delta * torch.eye(x.shape[1]).double()).inverse()
    return cov @ x.mT @ y / std**2, cov


def evidence(x: Tensor, y: Tensor, delta: float, std: float) -> float:
    """log N(y; 0, X Xᵀ / δ + std²)."""
    cov = x @ x.mT / delta + std**2 * torch.eye(len(x)).double()
    return float(torch.distributions.MultivariateNormal(torch.zeros(len(x)).double(), cov).log_prob(y[:, 0]))


def at(mean: Tensor) -> nn.Linear:
    net = nn.Linear(len(mean) - 1, 1).double()
    with torch.no_grad():
        net.weight.copy_(mean[:-1].T)
        net.bias.copy_(mean[-1])
    return net


def fitted(net: nn.Module, method: bf.Laplace, law: Any, x: Tensor, y: Tensor, **options: Any) -> Any:
    model = bf.bayesify(net, method, law)
    precision = "64-true" if x.dtype == torch.float64 else "32-true"
    model.history = bf.fit(model, loader(x, y), progress=False, precision=precision, **options)
    return model


@pytest.mark.parametrize("structure", ["full", "last_layer"])
def test_linear_regression_is_exact(structure: str) -> None:
    x, y, whole = line()
    mean, cov = posterior(whole, y, DELTA, STD)
    law = bf.likelihood("normal", std=STD)
    model = fitted(at(mean), bf.Laplace(structure, prior_precision=DELTA), law, x, y)
    assert model.posterior.log_evidence == pytest.approx(evidence(whole, y, DELTA, STD), rel=1e-9)
    far = 3 * torch.randn(5, 3, dtype=torch.float64)
    extended = torch.cat([far, torch.ones(5, 1).double()], 1)
    found = model.predict(far, 3)
    assert torch.allclose(found.mean, extended @ mean)
    assert torch.allclose(found.epistemic[:, 0], (extended @ cov * extended).sum(1))
    assert torch.allclose(found.variance, found.epistemic + STD**2)
    kept = model.predict(far, 3, keep_samples=True)
    assert kept.samples.shape == (3, 5, 1)
    normal = torch.distributions.Normal(found.mean, found.std)
    assert torch.allclose(kept.log_prob(extended @ mean + 1), normal.log_prob(extended @ mean + 1)[:, 0])
    variances = model.posterior.covariance.variance()
    assert torch.allclose(torch.cat([variances["weight"][0], variances["bias"]]), cov.diagonal())


def test_the_best_prior_precision_and_noise_are_those_of_the_exact_evidence() -> None:
    """At the mode for the δ that maximises the exact evidence, which the derivative by δ at the fixed mode shares."""
    x, y, whole = line()
    best = minimize_scalar(
        lambda u: -evidence(whole, y, 10**u, STD), bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}
    )
    mean, _ = posterior(whole, y, 10**best.x, STD)
    law = bf.likelihood("normal", std=STD)
    model = fitted(at(mean), bf.Laplace("full", prior_precision="marglik"), law, x, y)
    assert float(model.posterior.covariance.deltas[0]) == pytest.approx(10**best.x, rel=1e-5)
    assert model.posterior.log_evidence == pytest.approx(-best.fun, rel=1e-9)
    found = fitted(at(mean), bf.Laplace("full", prior_precision=DELTA), "normal", x, y)
    std = float(found.likelihood.std.detach())  # nobody chose it: found for this δ
    gamma = sum(v / (v + DELTA) for v in torch.linalg.eigvalsh(whole.mT @ whole / std**2).tolist())
    rest = float((y - whole @ mean).square().sum())
    assert std == pytest.approx((rest / (len(x) - gamma)) ** 0.5, rel=1e-6)  # MacKay's


def test_logistic_regression() -> None:
    x, y, whole = line()
    target = (y > 0).double()
    mean = torch.tensor([[0.5], [-1.0], [0.2], [0.1]]).double()
    model = fitted(at(mean), bf.Laplace("full", prior_precision=DELTA), "bernoulli", x, target)
    p = (whole @ mean).sigmoid()[:, 0]
    exact = (whole.mT @ ((p * (1 - p))[:, None] * whole) + DELTA * torch.eye(4).double()).inverse()
    variances = model.posterior.covariance.variance()
    assert torch.allclose(torch.cat([variances["weight"][0], variances["bias"]]), exact.diagonal())


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()


def cnn() -> nn.Module:
    """With batch norm, a grouped convolution, and an embedding of positions that meets a sum."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.norm = nn.Conv2d(1, 4, 2, padding=1), nn.BatchNorm2d(4)
            self.second = nn.Conv2d(4, 4, 2, stride=2, groups=2, bias=False)
            self.shift, self.last = nn.Parameter(torch.randn(4)), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            x = self.second(self.norm(self.first(x)).relu_()).relu().mean((2, 3))
            return self.last(x + self.shift)

    torch.manual_seed(0)
    net = Net().double()
    net(torch.randn(20, 1, 5, 5).double())  # statistics of batch norm
    return net.eval()


NETS: dict[str, Any] = {
    "mlp": (mlp, torch.randn(9, 3, generator=torch.Generator().manual_seed(1)).double()),
    "cnn": (cnn, torch.randn(6, 1, 5, 5, generator=torch.Generator().manual_seed(1)).double()),
}


def exact_ggn(net: nn.Module, x: Tensor) -> tuple[dict[str, slice], Tensor]:
    """Σ_n Jᵀ (diag p − p pᵀ) J of all weights, and where each one stands."""
    weights = {name: p.detach() for name, p in net.named_parameters() if "norm" not in name}
    jacobian = torch.func.jacrev(lambda w: torch.func.functional_call(net, w, (x,)))(weights)
    j = torch.cat([jacobian[name].flatten(2) for name in weights], 2)
    p = net(x).softmax(1).detach()
    total = torch.einsum("nci,ncd,ndj->ij", j, p.diag_embed() - p[:, :, None] * p[:, None], j)
    places, start = {}, 0
    for name, w in weights.items():
        places[name] = slice(start, start := start + w.numel())
    return places, total


def found_pass(net: nn.Module, x: Tensor, structure: str) -> tuple[Any, Any]:
    model = bf.bayesify(net, bf.Laplace("kron"), num_data=len(x))
    net.eval()
    data = TrainingData(lambda: [(x, torch.zeros(len(x)).long())], len(x), model.likelihood, model.pick)
    return model, curvature(net, model.posterior.slots, structure, data)


@pytest.mark.parametrize("name", NETS)
def test_dense_and_diagonal_curvature_are_autograds(name: str) -> None:
    make, x = NETS[name]
    places, exact = exact_ggn(make(), x)
    _, dense = found_pass(make(), x, "dense")
    block = dense.blocks[0]
    assert torch.allclose(block.vectors * block.values @ block.vectors.mT, exact, atol=1e-10)
    _, diagonal = found_pass(make(), x, "diag")
    for (weight,), part in zip(diagonal.names, diagonal.blocks, strict=True):
        assert torch.allclose(part.values.flatten(), exact.diagonal()[places[weight]], atol=1e-12)


@pytest.mark.parametrize("name", NETS)
def test_kronecker_factors_by_their_definition(name: str) -> None:
    """L = 1/R Σ g gᵀ over all rows r and columns, R = Σ x xᵀ, of biases Σ g gᵀ; the gradients by autograd through
    probes added to the outputs of the layers. What meets other operations has its diagonal."""
    make, x = NETS[name]
    net = make()
    places, exact = exact_ggn(make(), x)
    _, found = found_pass(make(), x, "kron")
    blocks = {names[0]: block for names, block in zip(found.names, found.blocks, strict=True)}
    for weight, (inputs, gradients) in naive_rows(net, x).items():
        groups = zip(inputs, gradients, strict=True)
        naive = torch.block_diag(*(torch.kron(g.mT @ g / len(a), a.mT @ a) for a, g in groups))
        block = blocks[f"{weight}.weight"]
        pairs = zip(
            block.left_vectors, block.left_values, block.right_vectors, block.right_values, strict=True
        )
        mine = torch.block_diag(*(torch.kron(q * v @ q.mT, r * u @ r.mT) for q, v, r, u in pairs))
        assert torch.allclose(mine, naive, atol=1e-10), weight
        if f"{weight}.bias" in blocks:
            bias, rows = blocks[f"{weight}.bias"], torch.cat(gradients, 1)
            assert torch.allclose(bias.vectors * bias.values @ bias.vectors.mT, rows.mT @ rows, atol=1e-10)
    if name == "cnn":
        assert torch.allclose(blocks["shift"].values, exact.diagonal()[places["shift"]], atol=1e-12)
        assert found.reasons == {"shift": "it meets another operation than a linear one"}


def test_random_combinations_of_many_outputs_have_the_curvature_as_their_mean(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """500 passes with 2 signs each: (lᵀ J)² of one example has a variance of at most 2 h² / 2, so that the mean of a
    sum over examples is within √(1/500) of it, times six, at a failure rate under 1e-6."""
    make, x = NETS["mlp"]
    _, exact = found_pass(make(), x, "diag")
    monkeypatch.setattr("bayesify.posteriors.gaussian.curvature.MOST_COLUMNS", 2)
    model = bf.bayesify(make(), bf.Laplace("kron"), num_data=len(x))
    batch = (x, torch.zeros(len(x)).long())
    data = TrainingData(lambda: [batch] * 500, len(x), model.likelihood, model.pick)
    found = curvature(model.net.eval(), model.posterior.slots, "diag", data)
    for one, other in zip(found.blocks, exact.blocks, strict=True):
        assert ((one.values - other.values).abs() <= 6 * 500**-0.5 * other.values + 1e-12).all()


def naive_rows(net: nn.Module, x: Tensor) -> dict[str, tuple[list[Tensor], list[Tensor]]]:
    """layer -> inputs (rows, in) and gradients (classes · rows, out) of every group."""
    seen: dict[str, tuple[Tensor, Tensor]] = {}
    layers = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d)}

    def hook(name: str, layer: Any, args: Any, output: Tensor) -> Tensor:
        probe = torch.zeros_like(output).requires_grad_()
        seen[name] = (args[0].detach(), probe)
        return output + probe

    handles = [
        m.register_forward_hook(lambda layer, args, out, n=n: hook(n, layer, args, out))
        for n, m in layers.items()
    ]
    output = net(x)
    for handle in handles:
        handle.remove()
    p = output.softmax(1).detach()
    roots = p.sqrt().diag_embed() - p[:, :, None] * p.sqrt()[:, None]  # (batch, classes, columns)
    found = {}
    for name, layer in layers.items():
        into, probe = seen[name]
        groups = getattr(layer, "groups", 1)
        columns = [torch.autograd.grad(output, probe, roots[:, :, c], retain_graph=True)[0] for c in range(3)]
        if isinstance(layer, nn.Conv2d):
            rows = [F.unfold(part, layer.kernel_size, 1, layer.padding, layer.stride).mT.flatten(0, 1)
                    for part in into.chunk(groups, 1)]  # fmt: skip
            gs = [
                [g.chunk(groups, 1)[i].movedim(1, -1).flatten(0, -2) for g in columns] for i in range(groups)
            ]
        else:
            rows, gs = [into], [columns]
        found[name] = (rows, [torch.cat(g) for g in gs])
    return found


@pytest.mark.parametrize("structure", ["kron", "diag", "full"])
@pytest.mark.parametrize("name", NETS)
def test_draws_variances_and_outputs_are_of_one_covariance(name: str, structure: str) -> None:
    """(s H + δ)⁻¹ column by column from `of_outputs`, whose J is the identity."""
    make, x = NETS[name]
    model = bf.bayesify(make(), bf.Laplace(structure, prior_precision=DELTA), num_data=50)
    bf.fit(model, [(x, torch.arange(len(x)) % 3)], progress=False, precision="64-true")
    found: Precision = model.posterior.covariance
    shapes = {n: s[0].get().shape for n, s in model.posterior.slots.items()}
    total = sum(shape.numel() for shape in shapes.values())
    eye = torch.eye(total).double().split([shape.numel() for shape in shapes.values()], 1)
    identity = {n: part.reshape(1, total, *shapes[n]) for n, part in zip(shapes, eye, strict=True)}
    cov = found.of_outputs(identity)[0]
    variances = torch.cat([found.variance()[n].flatten() for n in shapes])
    assert torch.allclose(cov.diagonal(), variances)
    # 20,000 draws: each entry of their covariance has a standard error of at most √(2/n) of its scale; six of them
    n = 20_000
    drawn = found.deviations(n, torch.Generator().manual_seed(0))
    rows = torch.cat([drawn[name].flatten(1) for name in shapes], 1)
    scale = variances.sqrt()[:, None] * variances.sqrt()
    assert ((rows.mT @ rows / n - cov).abs() < 6 * (2 / n) ** 0.5 * scale).all()


def classes() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.randn(60, 3)
    y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3)), x, y


def test_a_fit_without_epochs_trains_nothing_and_one_with_epochs_trains_the_plain_network() -> None:
    net, x, y = classes()
    before = {name: p.clone() for name, p in net.named_parameters()}
    model = bf.bayesify(net, bf.Laplace())
    with pytest.warns(UserWarning, match="no covariance yet.*call bf.fit"):
        model.predict(x)
    history = bf.fit(model, loader(x, y), progress=False)
    assert not history and any("Laplace: dense curvature" in note for note in history.notes)
    assert all(torch.equal(p, before[name]) for name, p in net.named_parameters())
    assert len(bf.fit(model, loader(x, y), epochs=2, progress=False)) == 2
    assert not torch.equal(net[0].weight, before["0.weight"])
    assert model.predict(x).mutual_information.min() > 0
    said = str(model.summary())
    assert "normal (dense 59×59, prior precision" in said and "log marginal likelihood" in said


def test_it_trains_as_the_plain_network_does() -> None:
    net, x, y = classes()
    other, *_ = classes()
    models = [bf.bayesify(net, bf.Laplace()), bf.bayesify(other, "point")]
    for model in models:
        bf.fit(model, loader(x, y), epochs=3, seed=0, progress=False)
    assert torch.equal(net[0].weight, other[0].weight)


@pytest.mark.parametrize("structure", [None, "kron", "diag", "full", "last_layer"])
def test_files_bring_it_back(structure: str | None, tmp_path: Path) -> None:
    net, x, y = classes()
    model = bf.bayesify(net, bf.Laplace(structure))
    bf.fit(model, loader(x, y), loader(x, y), epochs=1, folder=tmp_path, progress=False)
    again = bf.load(tmp_path / "model.safetensors", classes()[0])
    seen = [m.predict(x, 5, generator=torch.Generator().manual_seed(0)) for m in (model, again)]
    assert torch.equal(seen[0].probs, seen[1].probs) and seen[0].epistemic.max() > 0
    random = [w.name for w in model.selection.random]
    assert [again.posterior.describe(n) for n in random] == [model.posterior.describe(n) for n in random]
    assert again.posterior.notes() == model.posterior.notes()
    resumed = bf.bayesify(classes()[0], bf.Laplace(structure))
    bf.fit(resumed, loader(x, y), loader(x, y), epochs=1, folder=tmp_path, progress=False)
    found = resumed.predict(x, 5, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(found.probs, seen[0].probs, atol=1e-6)


def test_a_prior_precision_by_validation_and_one_for_each_layer() -> None:
    net, x, y = classes()
    wrong = torch.where(
        torch.arange(len(y)) % 5 == 0, (y + 1) % 3, y
    )  # held-out labels that are no surer than that
    val = loader(x, wrong, 60)
    model = bf.bayesify(net, bf.Laplace("kron"))
    notes = bf.fit(model, loader(x, y), val, epochs=50, lr=1e-2, progress=False).notes
    assert "by validation" in notes[-1]
    chosen = float(model.posterior.covariance.deltas[0])
    nll = bf.evaluate(model, val, generator=torch.Generator().manual_seed(0))["nll"]
    for delta in (chosen / 10, chosen * 10):
        model.posterior.covariance.deltas.fill_(delta)
        assert bf.evaluate(model, val, generator=torch.Generator().manual_seed(0))["nll"] > nll
    model = bf.bayesify(classes()[0], bf.Laplace("kron", prior_precision="marglik", per_layer=True))
    assert "one for each layer" in bf.fit(model, loader(x, y), progress=False).notes[-1]
    deltas = model.posterior.covariance.deltas
    assert deltas[0] == deltas[1] != deltas[2] == deltas[3]


def test_validation_goes_beyond_its_grid_or_says_that_it_found_no_end() -> None:
    """A law whose NLL is least at δ = 10^6, one that has no least, and one within the grid."""
    net, x, y = classes()
    model = fitted(net, bf.Laplace("diag", prior_precision=1.0), "categorical", x, y)
    for decade, expected in (
        (6.0, None),
        (-5.0, None),
        (1.6, None),
        (30.0, "no uncertainty"),
        (-30.0, "the prior"),
    ):
        data = TrainingData(
            lambda: iter(()),
            None,
            model.likelihood,
            model.pick,
            score=lambda: abs(math.log10(float(model.posterior.covariance.deltas[0])) - decade),  # noqa: B023
        )
        (delta,), said = model.posterior._validated(data, 1)
        assert (said is None) == (expected is None) and (expected or "") in (said or "")
        if expected is None:
            assert abs(math.log10(delta) - decade) < 0.21
    model = bf.bayesify(classes()[0], bf.Laplace("diag", prior_precision="validation"))
    certain = bf.fit(model, loader(x, y), [(x, model.net(x).argmax(1).detach())], progress=False)
    assert "no uncertainty of its weights" in certain.notes[-1]
    wide, usual = (bf.evaluate(model, [(inputs, y)])["nll"] for inputs in (x.double(), x))
    assert wide == pytest.approx(usual, rel=1e-4)


def test_members_and_draws_of_weights(tmp_path: Path) -> None:
    net, x, y = classes()
    model = bf.bayesify(net, bf.DeepEnsemble(bf.Laplace("diag", prior_precision=1.0), 2))
    notes = bf.fit(model, loader(x, y), progress=False).notes
    assert any(text.startswith("member 1: Laplace: diag") for text in notes)
    assert model.predict(x, 6, keep_samples=True).num_draws == 6
    bf.save(model, tmp_path / "both.safetensors")
    again = bf.load(tmp_path / "both.safetensors", classes()[0])
    files = []
    for i in range(2):
        one = bf.bayesify(model.member(i), bf.Laplace("diag", prior_precision=1.0))
        bf.fit(one, loader(x, y), progress=False)
        bf.save(one, tmp_path / f"{i}.safetensors")
        files.append(tmp_path / f"{i}.safetensors")
    merged = bf.merge(files, classes()[0])
    seen = [m.predict(x, 6, generator=torch.Generator().manual_seed(0)).probs for m in (model, again, merged)]
    assert torch.equal(seen[0], seen[1]) and torch.allclose(seen[0], seen[2], atol=1e-6)
    drawn = bf.bayesify(classes()[0], bf.Laplace("diag", linearised=False))
    bf.fit(drawn, loader(x, y), progress=False)
    one, other = drawn.eval()(x), drawn(x)
    assert not torch.equal(one, other) and drawn.predict(x, 4).num_draws == 4


def test_a_pass_in_eval_mode_is_a_draw_of_the_linearised_network() -> None:
    net, x, y = classes()
    model = bf.bayesify(net, bf.Laplace("full", prior_precision=1.0)).eval()
    bf.fit(model, loader(x, y), progress=False)
    found = model(x, generator=torch.Generator().manual_seed(3))
    moves = model.posterior.covariance.deviations(1, torch.Generator().manual_seed(3))
    jacobian = torch.func.jacrev(lambda w: torch.func.functional_call(net, w, (x,)))(
        {name: p.detach() for name, p in net.named_parameters()}
    )
    expected = net(x) + sum((jacobian[name] * moves[name]).flatten(2).sum(2) for name in moves)
    assert torch.allclose(found, expected, atol=1e-4)


class Nothing(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(())


def test_refusals() -> None:
    net, x, y = classes()
    with pytest.raises(ValueError, match="structure='dense'"):
        bf.Laplace("dense")
    with pytest.raises(ValueError, match="prior_precision='best'"):
        bf.Laplace(prior_precision="best")
    with pytest.raises(ValueError, match="per_layer=True is found by prior_precision='marglik'"):
        bf.Laplace(prior_precision=1.0, per_layer=True)
    with pytest.raises(ValueError, match="per_layer=True needs a curvature by layer.*use 'kron'"):
        bf.Laplace("full", per_layer=True)
    model = bf.bayesify(net, bf.Laplace(prior_precision="validation"))
    with pytest.raises(ValueError, match="prior_precision='validation' needs a val_loader"):
        bf.fit(model, loader(x, y), progress=False)
    with pytest.raises(
        ValueError, match="'laplace' looks at the training data in one process, and this run has 2"
    ):
        check_conclusion(model, [], 2)
    wrong = bf.bayesify(classes()[0], bf.Laplace(find_noise=True))
    with pytest.raises(ValueError, match="find_noise=True is for likelihood='normal'.*'categorical'"):
        bf.fit(wrong, loader(x, y), progress=False)
    large = bf.bayesify(nn.Linear(MOST_DENSE, 3), bf.Laplace("full"))
    with pytest.raises(ValueError, match="a dense curvature of 30,003 weights.*structure='kron'"):
        bf.fit(large, [(torch.randn(2, MOST_DENSE), torch.zeros(2).long())], progress=False)
    with pytest.raises(ValueError, match="train_loader is empty"):
        bf.fit(bf.bayesify(classes()[0], bf.Laplace()), DataLoader(Nothing()), progress=False)


def test_the_structure_goes_by_the_size_of_the_network() -> None:
    def decided(net: nn.Module) -> tuple[Any, str]:
        method = bf.bayesify(net, bf.Laplace()).method
        return method.structure, str(method.where)

    assert decided(nn.Linear(10, 10)) == ("full", "~norm")
    assert decided(nn.Linear(60, 60)) == ("kron", "~norm")
    assert decided(nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 2))) == (
        "last_layer",
        "output",
    )
    assert decided(nn.Sequential(nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 9))) == ("kron", "output")


def test_a_prior_precision_that_nobody_chose_leaves_the_training_data_sure() -> None:
    """Classes far apart, told with margins at which the curvature is next to nothing."""
    torch.manual_seed(0)
    y = torch.arange(60) % 3
    x = 4 * nn.functional.one_hot(y, 3).float() + 0.1 * torch.randn(60, 3)
    net = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
    plain = bf.bayesify(net, "point")
    bf.fit(plain, loader(x, y), epochs=60, lr=1e-2, progress=False)
    sure = float(plain.predict(x).confidence.mean())
    found = {}
    for asked in ("marglik", None):
        own = nn.Sequential(nn.Linear(3, 16), nn.Tanh(), nn.Linear(16, 3))
        own.load_state_dict(net.state_dict())
        model = bf.bayesify(own, bf.Laplace(prior_precision=asked))
        history = bf.fit(model, loader(x, y), progress=False)
        generator = torch.Generator().manual_seed(0)
        found[asked] = float(model.predict(x, generator=generator).confidence.mean())
        assert any("it was raised" in note for note in history.notes) == (asked is None)
    assert found["marglik"] < sure - 0.02
    assert sure - 0.012 < found[None] < sure


def test_an_iterator_has_no_second_pass() -> None:
    x, y = torch.randn(20, 4), torch.arange(20) % 2
    with pytest.raises(ValueError, match=r"train_loader=list_iterator is an iterator.*give a DataLoader"):
        bf.fit(bf.bayesify(nn.Linear(4, 2), bf.Laplace()), iter([(x, y)]), progress=False)


def test_weights_that_move_on_in_a_loop_of_ones_own_are_told(tmp_path: Path) -> None:
    net, x, y = classes()
    model = bf.bayesify(net, bf.Laplace())
    bf.fit(model, loader(x, y), progress=False)
    model.predict(x)
    bf.save(model, tmp_path / "m.safetensors")
    copied, loaded = copy.deepcopy(model), bf.load(tmp_path / "m.safetensors", classes()[0])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.loss(x, y).total.backward()
    optimizer.step()
    with pytest.warns(UserWarning, match="the weights were changed after the covariance.*call bf.fit"):
        model.predict(x)
    copied.predict(x), loaded.predict(x)
    bf.fit(model, loader(x, y), progress=False)
    model.cautioned = False
    model.predict(x)
