"""Normal priors by tensors, by the names of weights, and of the width that fits best."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Laplace, Normal, kl_divergence

import bayesify as bf
from bayesify.files.storage import header_of

MEAN = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
STD = 0.1 + torch.rand(3, 1, generator=torch.Generator().manual_seed(1))


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2))


def model(prior: bf.priors.Prior, **options: object) -> bf.BayesianModule:
    """With widths and means that are not those of the start."""
    made = bf.bayesify(
        net(), bf.MonteCarloVI(prior=prior, init_std=0.3, kl_weight=1.0, **options), num_data=50
    )  # type: ignore[arg-type]
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for p in made.parameters():
            p.add_(0.2 * torch.randn(p.shape, generator=generator))
    return made


def exact(made: bf.BayesianModule, priors: dict[str, tuple[Tensor, Tensor]]) -> Tensor:
    """Σ KL to N(mean, std²) by torch.distributions."""
    qs = made.posterior.distributions(list(made.posterior.slots))
    return torch.stack(
        [
            kl_divergence(Normal(q.mean, q.variance.sqrt()), Normal(*priors[name])).sum()
            for name, q in qs.items()
        ]
    ).sum()


def by_name() -> tuple[bf.priors.Prior, dict[str, tuple[Tensor, Tensor]]]:
    """Another network's weights, and stds of a tensor or a number."""
    means = {name: p.detach() for name, p in net(3).named_parameters()}
    stds = {
        "0.weight": STD,
        "0.bias": 0.3,
        "2.weight": torch.tensor([0.2, 0.4, 0.6]),
        "2.bias": torch.tensor(0.7),
    }
    full = {name: (means[name], torch.as_tensor(stds[name])) for name in means}
    return bf.prior("normal", mean=means, std=stds), full


@pytest.mark.parametrize("family", ["normal", "laplace"])
def test_kl_of_a_tensor(family: str) -> None:
    """Of 200,000 draws, 6 standard errors for the Laplace family."""
    q = bf.family(family, like=MEAN + 0.1, init_std=0.3)
    p = bf.prior("normal", mean=MEAN, std=STD)
    found = bf.kl(q, p)
    law = q.distribution()
    if family == "normal":
        torch.testing.assert_close(found, kl_divergence(Normal(law.loc, law.scale), Normal(MEAN, STD)).sum())
    else:
        other = Laplace(law.loc, law.scale)
        torch.manual_seed(0)
        draws = other.sample((200_000,))
        each = (other.log_prob(draws) - Normal(MEAN, STD).log_prob(draws)).sum((1, 2))
        assert abs(found - each.mean()) < 6 * each.std() / 200_000**0.5
    torch.testing.assert_close(p.log_prob(MEAN + 1), Normal(MEAN, STD.expand(3, 4)).log_prob(MEAN + 1))
    half = bf.prior("normal", mean=0.3, std=STD)
    torch.testing.assert_close(half.log_prob(MEAN), Normal(0.3, STD).log_prob(MEAN))


@pytest.mark.parametrize("kl", ["auto", "repar"])
def test_kl_by_name(kl: str) -> None:
    prior, full = by_name()
    made = model(prior, kl=kl, num_kl_draws=100_000)
    found, expected = made.kl(), exact(made, full)
    # of 100,000 draws of 23 weights: the standard error is below 0.03
    torch.testing.assert_close(
        found, expected, rtol=1e-5 if kl == "auto" else 0, atol=1e-5 if kl == "auto" else 0.2
    )
    parameters = [p for p in made.parameters() if p.requires_grad]
    if kl == "auto":
        for mine, best in zip(
            torch.autograd.grad(found, parameters), torch.autograd.grad(expected, parameters), strict=True
        ):
            torch.testing.assert_close(mine, best, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("variance", ["weight", "row"])
def test_one_pass_variances(variance: str) -> None:
    prior, full = by_name()
    made = bf.bayesify(
        net(), bf.DensityPropagation(prior=prior, variance=variance, covariance="diagonal"), num_data=50
    )
    torch.testing.assert_close(made.kl(), exact(made, full))


def test_layers_of_their_own() -> None:
    rules = {r"^0\.weight": bf.prior("normal", mean=MEAN, std=STD), "bias$": bf.prior("normal", std=0.5)}
    made = model(
        bf.prior("per_layer", rules=rules, default=bf.prior("normal", std=torch.tensor([0.1, 0.2, 0.3])))
    )
    one = torch.tensor(0.0), torch.tensor(0.5)
    full = {
        "0.weight": (MEAN, STD),
        "0.bias": one,
        "2.bias": one,
        "2.weight": (one[0], torch.tensor([0.1, 0.2, 0.3])),
    }
    torch.testing.assert_close(made.kl(), exact(made, full))


@pytest.mark.parametrize("mean", [0.0, 0.4, "net", MEAN])
def test_the_empirical_width_is_the_best_one(mean: float | str | Tensor) -> None:
    made = model(bf.prior("per_layer", rules={"^0.weight": bf.prior("normal", mean=mean, std="empirical")}))
    name = "0.weight"
    q = made.posterior.distributions([name])[name]
    centre = net()[0].weight.detach() if mean == "net" else torch.as_tensor(mean)
    log_std = torch.tensor(-2.0, requires_grad=True)
    others = exact(made, {n: (torch.tensor(0.0), torch.tensor(1.0)) for n in made.posterior.slots})
    others = others - kl_divergence(Normal(q.mean, q.variance.sqrt()), Normal(0.0, 1.0)).sum()
    optimizer = torch.optim.LBFGS([log_std], max_iter=200, tolerance_grad=1e-7, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        kl = kl_divergence(
            Normal(q.mean.detach(), q.variance.detach().sqrt()), Normal(centre, log_std.exp())
        ).sum()
        kl.backward()
        return kl

    optimizer.step(closure)
    std = log_std.detach().exp()
    best = kl_divergence(Normal(q.mean, q.variance.sqrt()), Normal(centre, std)).sum()
    found = made.kl()
    torch.testing.assert_close(found, best + others, rtol=1e-5, atol=1e-4)
    # the gradient is that of the best width held still
    parameters = [made.net[0].weight, made.posterior.random_tensor(name).log_scale]
    pairs = zip(torch.autograd.grad(found, parameters), torch.autograd.grad(best, parameters), strict=True)
    for mine, expected in pairs:
        torch.testing.assert_close(mine, expected, rtol=1e-3, atol=1e-4)
    assert f"std of the prior by empirical Bayes: 0.weight {std.item():.3g}" in str(made.summary())


@pytest.mark.parametrize("method", [bf.Point, bf.ThermostatMCMC])
def test_energies(method: type[bf.methods.Method]) -> None:
    prior, full = by_name()
    made = bf.bayesify(net(), method(prior=prior), num_data=50)  # type: ignore[call-arg]
    expected = -sum(Normal(*full[name]).log_prob(p).sum() for name, p in made.net.named_parameters())
    torch.testing.assert_close(made.kl(), expected)
    made.kl().backward()
    for name, p in made.net.named_parameters():
        mean, std = full[name]
        torch.testing.assert_close(p.grad, (p.detach() - mean) / std.square())


@pytest.mark.parametrize(
    "method",
    [
        lambda p: bf.MonteCarloVI(prior=p),
        lambda p: bf.DensityPropagation(prior=p, covariance="diagonal"),
        lambda p: bf.ThermostatMCMC(prior=p),
        lambda p: bf.DeepEnsemble(bf.MonteCarloVI(prior=p), 2),
    ],
)
def test_files(method: object, tmp_path: Path) -> None:
    made = bf.bayesify(net(), method(by_name()[0]), num_data=50)  # type: ignore[operator]
    bf.save(made, tmp_path / "model.safetensors")
    again = bf.load(tmp_path / "model.safetensors", net(5))
    torch.testing.assert_close(again.kl(), made.kl(), rtol=0, atol=0)
    assert header_of(again) == header_of(made)
    bf.save(again, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()


def test_ivon_takes_means_and_no_stds_by_tensor() -> None:
    means = {name: p.detach() for name, p in net(3).named_parameters()}
    made = bf.bayesify(net(), bf.IVON(prior=bf.prior("normal", mean=means, std=0.4)), num_data=50)
    full = {name: (mean, torch.tensor(0.4)) for name, mean in means.items()}
    torch.testing.assert_close(made.kl(), exact(made, full))
    optimizer = made.optimizer(num_steps=10)
    for name, p in made.net.named_parameters():
        assert torch.equal(optimizer.state[p]["centre"], means[name])
    for std in (torch.tensor(0.3), "empirical"):
        with pytest.raises(
            ValueError, match=r"prior std=.* of '0.weight' must be a number.*bf\.MonteCarloVI"
        ):
            bf.bayesify(net(), bf.IVON(prior=bf.prior("normal", std=std)), num_data=50)


def test_what_cannot_be_is_named() -> None:
    with pytest.raises(
        ValueError,
        match=r"prior mean of shape \(5,\) does not broadcast to the weight '0.weight' of shape \(3, 4\)",
    ):
        model(bf.prior("normal", mean=torch.zeros(5)))
    with pytest.raises(
        ValueError, match=r"prior mean has none for the weight '0.bias', but for 0.weight: .*per_layer"
    ):
        model(bf.prior("normal", mean={"0.weight": MEAN}))
    with pytest.raises(ValueError, match=r"prior std=.*must be positive, the least is -1"):
        bf.prior("normal", std=torch.tensor([1.0, -1.0]))
    with pytest.raises(ValueError, match=r"prior mean=.* must be a tensor of finite floating-point numbers"):
        bf.prior("normal", mean=torch.tensor([torch.nan]))
    with pytest.raises(ValueError, match=r"is no tensor: give torch\.tensor"):
        bf.prior("normal", mean={"tensor": "3x4"})
    with pytest.raises(TypeError, match=r"prior std='empiric' must be a number, a tensor.*'empirical'"):
        bf.prior("normal", std="empiric")
    with pytest.raises(ValueError, match=r"prior std\['a'\]=-1\.0 must be positive"):
        bf.prior("normal", std={"a": -1.0})
    for p in (bf.prior("normal", std="empirical"), bf.prior("normal", mean={"a": MEAN})):
        with pytest.raises(ValueError, match=r"is of the weights of a network: use prior\.at"):
            p.log_prob(MEAN)
        with pytest.raises(ValueError, match=r"lies around the weights of a network"):
            bf.kl(bf.family("normal", like=MEAN), p)
    for method in (bf.Point, bf.ThermostatMCMC):
        with pytest.raises(ValueError, match=r"std='empirical' of '0.weight' is for variational posteriors"):
            bf.bayesify(net(), method(prior=bf.prior("normal", std="empirical")), num_data=50)
    wide = bf.prior("per_layer", default=bf.prior("normal", std=torch.tensor(0.3)))
    log_normal = bf.MonteCarloVI(family="log_normal", prior=wide)
    with pytest.raises(
        ValueError, match=r"std=.*of '0.weight' is for families w = loc \+ scale ξ, and 'log_normal'"
    ):
        bf.bayesify(net(), log_normal, num_data=50)
    with pytest.raises(ValueError, match=r"is for families w = loc \+ scale ξ, and"):
        bf.kl(bf.family("log_normal", like=MEAN), bf.prior("normal", mean=MEAN))


def test_priors_with_tensors_compare_by_what_is_in_them() -> None:
    one, same, other = (bf.prior("normal", mean=t) for t in (MEAN, MEAN.clone(), MEAN + 1))
    assert one == same != other and hash(one) == hash(same)
    assert repr(one).startswith("normal(mean={'tensor': '3x4:")
