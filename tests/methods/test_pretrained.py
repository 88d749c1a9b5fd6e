"""Networks that are trained already: priors around their weights, and what goes by that start."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine.options import FitOptions
from bayesify.engine.settling import settled

AROUND = bf.prior("normal", mean="net", std=0.3)
METHODS = {
    "mc_vi": bf.MonteCarloVI(prior=AROUND, init_std=0.5),
    "mc_vi, drawn": bf.MonteCarloVI(prior=AROUND, init_std=0.5, kl="repar", num_kl_draws=50_000),
    "mc_vi, laplace": bf.MonteCarloVI(prior=AROUND, family="laplace", kl="stream", num_kl_draws=50_000),
    "vdp": bf.DensityPropagation(prior=AROUND, covariance="diagonal"),
    "vdp, rows": bf.DensityPropagation(prior=AROUND, covariance="diagonal", variance="row"),
    "ivon": bf.IVON(prior=AROUND),
}


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 3))


def convolutional(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2))


def moved(model: bf.BayesianModule, by: float = 0.2) -> dict[str, Tensor]:
    """Move every weight of a model, as training does; the weights before."""
    before = {name: p.detach().clone() for name, p in model.net.named_parameters()}
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for p in model.net.parameters():
            p.add_(by * torch.randn(p.shape, generator=generator))
    return before


def best(model: bf.BayesianModule, before: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Σ KL(N(m, σ²) ‖ N(w₀, 0.3²)) by torch.distributions, and its gradients by all means and all log σ."""
    total = torch.zeros(())
    found = model.posterior.distributions(list(model.posterior.slots))
    for name, q in found.items():
        total = total + kl_divergence(Normal(q.mean, q.variance.sqrt()), Normal(before[name], 0.3)).sum()
    return total, *_gradients(model, total)


def _gradients(model: bf.BayesianModule, total: Tensor) -> tuple[Tensor, Tensor]:
    random = [slots[0].get() for slots in model.posterior.slots.values()]
    widths = list(model.posterior.q.parameters())
    parts = torch.autograd.grad(total, [*random, *widths])
    by_mean, by_width = parts[: len(random)], parts[len(random) :]
    return torch.cat([g.flatten() for g in by_mean]), torch.cat([g.flatten() for g in by_width])


@pytest.mark.parametrize("name", [name for name in METHODS if "drawn" not in name and "laplace" not in name])
def test_the_kl_is_that_to_a_normal_around_the_first_weights(name: str) -> None:
    model = bf.bayesify(net(), METHODS[name], num_data=100)
    before = moved(model)
    kl = model.kl()
    expected = best(model, before)
    torch.testing.assert_close((kl, *_gradients(model, kl)), expected)


def test_drawn_kls_are_of_the_same_prior() -> None:
    """Tolerances: 5 standard errors of 50,000 draws of D = 75 summands (of normal ones, whose mean is exact but for ξ̄
    and ξ²: below .02 a weight; of Laplace ones .01); a prior around 0 would be off by more than 30."""
    for name, width in (("mc_vi, drawn", 0.2), ("mc_vi, laplace", 1.0)):
        model = bf.bayesify(net(), METHODS[name], num_data=100)
        before = moved(model)
        torch.manual_seed(4)
        kl = model.kl()
        total = torch.zeros(())
        for weight, q in model.posterior.distributions(list(model.posterior.slots)).items():
            draws = q.rsample(20_000)
            total += (q.log_prob(draws) - Normal(before[weight], 0.3).log_prob(draws)).mean(0).sum()
        assert abs(kl - total) < width, name


@pytest.mark.parametrize("method", [bf.ThermostatMCMC(prior=AROUND), bf.Point(prior=AROUND)])
def test_the_energy_is_that_of_a_normal_around_the_first_weights(method: bf.methods.Method) -> None:
    model = bf.bayesify(net(), method, num_data=100)
    before = moved(model)
    expected = -sum(Normal(before[name], 0.3).log_prob(p).sum() for name, p in model.net.named_parameters())
    torch.testing.assert_close(model.kl(), expected)
    x, y = torch.randn(8, 4), torch.tensor([0, 1, 2, 0, 1, 2, 0, 1])
    model.eval()
    torch.testing.assert_close(model.loss(x, y).kl, expected)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x, target=y).kl, expected)


@pytest.mark.parametrize("kind", [bf.MonteCarloVI, bf.IVON])
def test_a_conjugate_regression_reaches_its_best_posterior(kind: Any) -> None:
    """Precision XᵀX/s² + 1/p², mean by it from XᵀY/s² + w₀/p². Of ten examples, so that the prior counts: with one
    around 0 the mean would be more than 2 stds away. Tolerances: those of tests/methods/test_ivon.py."""
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(10, 3, generator=generator), 1.0
    y = x @ torch.tensor([[1.5], [-1.0], [0.8]]) + noise * torch.randn(10, 1, generator=generator)
    start = torch.tensor([[2.0, 1.0, -1.5]])
    precision = (x.T @ x / noise**2 + torch.eye(3) / 0.3**2).double()
    mean = torch.linalg.solve(precision, (x.T @ y / noise**2 + start.T / 0.3**2).double())[:, 0]
    around_zero = torch.linalg.solve(precision, (x.T @ y / noise**2).double())[:, 0]
    width = precision.diagonal().rsqrt()
    assert ((mean - around_zero).abs() > 2 * width).all()
    linear = nn.Linear(3, 1, bias=False)
    linear.weight.data.copy_(start)
    options = {"beta2": 1 - 1 / 400} if kind is bf.IVON else {}
    model = bf.bayesify(
        linear, kind(prior=AROUND, **options), bf.likelihood("normal", std=noise), num_data=10
    )
    steps = 1500
    optimizer = model.optimizer(lr=0.1, num_steps=steps) if kind is bf.IVON else model.optimizer(lr=0.02)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    torch.manual_seed(2)
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(x, y, num_draws=4).total.backward()
        optimizer.step()
        schedule.step()
    q = model.posterior.distributions(["weight"])["weight"]
    assert ((q.mean.detach()[0].double() - mean).abs() < 0.1 * width).all()
    assert ((q.variance.detach()[0].double() / width.square()) - 1).abs().max() < 0.18


@pytest.mark.parametrize("name", ["mc_vi", "vdp", "ivon", "atmc", "deep_ensemble"])
def test_files_keep_where_the_prior_lies(name: str, tmp_path: Path) -> None:
    method = {
        **METHODS,
        "atmc": bf.ThermostatMCMC(prior=AROUND),
        "deep_ensemble": bf.DeepEnsemble(bf.MonteCarloVI(prior=AROUND), 2),
    }[name]
    model = bf.bayesify(net(), method, num_data=100, start="pretrained")
    moved(model)
    bf.save(model, tmp_path / "model.safetensors")
    again = bf.load(tmp_path / "model.safetensors", net(seed=5))
    torch.testing.assert_close(again.kl(), model.kl(), rtol=0, atol=0)
    assert again.start == "pretrained"
    assert again.method.options() == model.method.options()


def test_merged_models_keep_where_their_priors_lie(tmp_path: Path) -> None:
    paths, kls = [], []
    for seed in range(2):
        model = bf.bayesify(net(seed), METHODS["mc_vi"], num_data=100)
        moved(model)
        kls.append(model.kl())
        paths.append(tmp_path / f"{seed}.safetensors")
        bf.save(model, paths[-1])
    torch.testing.assert_close(bf.merge(paths, net(7)).kl(), torch.stack(kls).mean())


def test_families_that_do_not_move_are_refused() -> None:
    for method in (
        bf.MonteCarloVI(family="log_normal", prior=bf.prior("per_layer", default=AROUND)),
        bf.DensityPropagation(prior=AROUND, variance="layer"),
    ):
        with pytest.raises(
            ValueError, match=r"mean='net' is for families that move with their mean.*mean=0\.0"
        ):
            bf.bayesify(net(), method, num_data=100)
    with pytest.raises(TypeError, match=r"mean='nett' must be a number, a tensor.*'net'"):
        bf.prior("normal", mean="nett")
    with pytest.raises(ValueError, match="p=.* lies around the weights of a network"):
        bf.kl(bf.family("normal", like=torch.ones(3)), AROUND)


# -- start="pretrained" ------------------------------------------------------------------------------------
def test_what_is_left_open_goes_by_the_weights() -> None:
    around = bf.prior("normal", mean="net")
    for kind in (bf.MonteCarloVI, bf.DensityPropagation, bf.IVON, bf.ThermostatMCMC):
        model = bf.bayesify(net(), kind(), num_data=100, start="pretrained")
        assert model.method.prior == around, kind
        assert f"prior={around!r}" in str(model.summary())
        given = bf.bayesify(net(), kind(prior="normal"), num_data=100, start="pretrained")
        assert given.method.prior == bf.prior("normal")
        fresh = bf.bayesify(net(), kind(), num_data=100)
        assert fresh.method.prior == bf.prior("normal")
    assert bf.bayesify(net(), bf.IVON(), num_data=100, start="pretrained").method.init_std == 0.05
    assert bf.bayesify(net(), bf.EnsemblePatching(), start="pretrained").method.spread == 0.03
    assert bf.bayesify(net(), bf.EnsemblePatching(spread=0.2), start="pretrained").method.spread == 0.2
    log_normal = bf.MonteCarloVI(family="log_normal", prior="normal")
    assert bf.bayesify(net(), log_normal, num_data=100, start="pretrained").method.prior == bf.prior("normal")
    with pytest.raises(ValueError, match=r"start='pretraind'.*pretrained"):
        bf.bayesify(net(), "mc_vi", start="pretraind")


def test_members_of_a_trained_network_start_from_it() -> None:
    for init, start, same in (
        (None, "scratch", False),
        (None, "pretrained", True),
        ("fresh", "pretrained", False),
        ("copies", "scratch", True),
    ):
        model = bf.bayesify(net(), bf.DeepEnsemble(num_members=2, init=init), start=start)
        first, second = model.posterior.nets(model.net)
        assert torch.equal(first[0].weight, second[0].weight) is same
    with pytest.raises(ValueError, match="init='fresch'"):
        bf.DeepEnsemble(init="fresch")


def loader() -> Loader:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 4, 4, generator=generator)
    return Loader(Split(x, (x.mean((1, 2, 3)) > 0).long()), 10, shuffle=True, seed=0)


def test_the_recipe_takes_small_steps_and_says_so() -> None:
    for method in (bf.Point(), bf.EnsemblePatching(), bf.IVON(), bf.DeepEnsemble(num_members=2)):
        fresh, trained = (
            settled(FitOptions(), bf.bayesify(convolutional(), method, num_data=60, start=start), loader(), 6)
            for start in ("scratch", "pretrained")
        )
        assert trained[0].lr == pytest.approx(0.1 * fresh[0].lr)  # type: ignore[operator]
        assert trained[0].epochs < 0.4 * fresh[0].epochs  # type: ignore[operator]
        assert ", trained already)" in str(trained[1])
        assert "trained already" not in str(fresh[1])
    given = FitOptions(lr=0.3, optimizer="sgd", epochs=2)
    model = bf.bayesify(convolutional(), bf.Point(), num_data=60, start="pretrained")
    assert (settled(given, model, loader(), 6)[0].lr, settled(given, model, loader(), 6)[0].epochs) == (
        0.3,
        2,
    )


@pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning", "ignore:.*batch norm:UserWarning")
@pytest.mark.parametrize(
    "method", ["point", "mc_vi", "ivon", "atmc", "emp", "vdp", "deep_ensemble", "variance"]
)
def test_every_method_trains_from_there_and_goes_on_bit_for_bit(method: str, tmp_path: Path) -> None:
    def run(folder: Path, stop_at: int | None = None, resume: bool = False) -> dict[str, Tensor]:
        model = bf.bayesify(convolutional(), method, num_data=60, start="pretrained")
        calls = 0

        def stop(*_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == stop_at:
                raise InterruptedError

        model.register_forward_pre_hook(stop)
        options: dict[str, Any] = {"epochs": 4, "seed": 1, "progress": False, "compile": False}
        bf.fit(model, loader(), folder=folder, checkpoint_every=1, resume=resume, **options)
        return {name: tensor.clone() for name, tensor in model.state_dict().items()}

    whole = run(tmp_path / "whole")
    with pytest.raises(InterruptedError):
        run(tmp_path / "parts", stop_at=15)
    parts = run(tmp_path / "parts", resume=True)
    assert whole.keys() == parts.keys()
    for name, tensor in whole.items():
        torch.testing.assert_close(tensor, parts[name], rtol=0, atol=0, msg=name)
    first = dict(convolutional().named_parameters())["0.weight"]
    assert not torch.equal(whole["net.0.weight"], first)
