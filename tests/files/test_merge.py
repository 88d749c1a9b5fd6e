"""bf.merge: files of models trained apart become one ensemble, and what does not belong together is named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn

import bayesify as bf
from bayesify.files.merge import merge
from bayesify.methods import Method

X = torch.randn(7, 4, generator=Generator().manual_seed(1))


def mlp(hidden: int = 8, outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, outputs))


def stored(
    path: Path,
    method: Method,
    seed: int,
    likelihood: Any = "categorical",
    outputs: int | None = None,
    num_data: int = 50,
) -> tuple[bf.BayesianModule, Path]:
    """A model with random weights, buffers included, in a file."""
    torch.manual_seed(seed)
    if isinstance(likelihood, str):
        likelihood = bf.likelihood(likelihood)
    if outputs is None:
        outputs = 3 if likelihood.task == "classification" else 1
    model = bf.bayesify(mlp(outputs=outputs), method, likelihood, num_data)
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.net.buffers()):
            if tensor.is_floating_point():
                tensor.add_(0.3 * torch.rand_like(tensor))
    bf.save(model, path)
    return model, path


def several(folder: Path, make: Callable[[], Method]) -> tuple[list[bf.BayesianModule], list[Path]]:
    pairs = [stored(folder / f"{i}.safetensors", make(), seed=i) for i in range(3)]
    return [model for model, _ in pairs], [path for _, path in pairs]


def state(net: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in net.state_dict().items()}


def test_point_members_predict_their_average(tmp_path: Path) -> None:
    models, paths = several(tmp_path, bf.Point)
    net = mlp()
    merged = merge(paths, net)
    assert merged.net is net
    assert merged.method.options()["num_members"] == 3
    own = [model.predict(X).probs for model in models]
    prediction = merged.predict(X, keep_samples=True)
    assert prediction.num_draws == 3
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(prediction.samples, own, strict=True))
    assert torch.allclose(prediction.probs, torch.stack(own).mean(0), atol=1e-7)


def test_random_members_keep_their_posteriors(tmp_path: Path) -> None:
    """With one stream of random numbers the merged model draws what its members draw one after the other."""
    models, paths = several(tmp_path, lambda: bf.MonteCarloVI(init_std=0.3, kl_weight=0.5))
    merged = merge(paths, mlp())
    a, b = Generator().manual_seed(4), Generator().manual_seed(4)
    samples = merged.predict(X, 15, keep_samples=True, generator=a).samples
    own = [model.predict(X, 5, keep_samples=True, generator=b).samples for model in models]
    assert torch.equal(samples, torch.cat(own))
    assert torch.allclose(merged.kl(), torch.stack([model.kl() for model in models]).mean())
    assert merged.kl_weight == 0.5
    assert merged.num_data == 50


def test_a_merged_model_is_a_model(tmp_path: Path) -> None:
    _, paths = several(tmp_path, bf.MonteCarloVI)
    merged = merge([str(path) for path in paths], mlp())
    bf.save(merged, tmp_path / "merged.safetensors")
    loaded = bf.load(tmp_path / "merged.safetensors", mlp())
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in merged.state_dict().items())
    merged.loss(X, torch.zeros(7, dtype=torch.long)).total.backward()
    assert all(p.grad is not None for p in merged.parameters())
    assert "3 members" in str(merged.summary())
    assert merged.summary().notes == ()


def test_ensembles_give_all_their_members(tmp_path: Path) -> None:
    pair, first = stored(tmp_path / "pair.safetensors", bf.DeepEnsemble(bf.Point(), 2), seed=3)
    single, second = stored(tmp_path / "single.safetensors", bf.Point(), seed=4)
    merged = merge([first, second], mlp())
    own = torch.cat([model.predict(X, keep_samples=True).samples for model in (pair, single)])
    assert torch.equal(merged.predict(X, keep_samples=True).samples, own)


def test_learned_noise_levels_are_pooled(tmp_path: Path) -> None:
    """Mean, noise and variance are those of the mixture: Var y = E Var + Var E."""
    models, paths = [], [tmp_path / f"{i}.safetensors" for i in range(3)]
    for i, path in enumerate(paths):
        noise = bf.likelihood("normal", std=0.5 + 0.4 * i, learn_std=True)
        models.append(stored(path, bf.Point(), seed=i, likelihood=noise)[0])
    own = [model.predict(X) for model in models]
    prediction = merge(paths, mlp(outputs=1)).predict(X)
    mean = torch.stack([p.mean for p in own]).mean(0)
    assert torch.allclose(prediction.mean, mean, atol=1e-6)
    assert torch.allclose(prediction.aleatoric, torch.stack([p.aleatoric for p in own]).mean(0), rtol=1e-5)
    between = torch.stack([p.mean for p in own]).var(0)
    assert torch.allclose(prediction.variance, prediction.aleatoric + between, atol=1e-5)


def test_a_network_with_an_output_of_its_own(tmp_path: Path) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            return {"scores": self.inner(x)}

    def scores(out: dict[str, Tensor]) -> Tensor:
        return out["scores"]

    models = [bf.bayesify(Wrapped(), bf.Point(), output=scores) for _ in range(2)]
    paths = [tmp_path / f"{i}.safetensors" for i in range(2)]
    for model, path in zip(models, paths, strict=True):
        bf.save(model, path)
    merged = merge(paths, Wrapped(), output=scores)
    own = torch.stack([model.predict(X).probs for model in models])
    assert torch.equal(merged.predict(X, keep_samples=True).samples, own)


def test_members_of_different_data_have_no_number_of_data(tmp_path: Path) -> None:
    _, a = stored(tmp_path / "a.safetensors", bf.Point(), seed=0, num_data=50)
    _, b = stored(tmp_path / "b.safetensors", bf.Point(), seed=1, num_data=60)
    assert merge([a, b], mlp()).num_data is None


def test_the_same_weights_twice_are_noticed(tmp_path: Path) -> None:
    _, path = stored(tmp_path / "a.safetensors", bf.Point(), seed=0)
    with pytest.warns(UserWarning, match="hold the same weights: train every member with a seed"):
        merge([path, path], mlp())


OTHERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "method": (
        lambda path: stored(path, bf.Point(), 1),
        "method is 'point' here and 'mc_vi' there",
    ),
    "option": (
        lambda path: stored(path, bf.MonteCarloVI(init_std=0.2), 1),
        "method.init_std is 0.2 here and 0.05 there",
    ),
    "prior": (
        lambda path: stored(path, bf.MonteCarloVI(prior=bf.prior("normal", std=3.0)), 1),
        "method.prior.options.std is 3.0 here and 1.0 there",
    ),
    "where": (
        lambda path: stored(path, bf.MonteCarloVI(where=bf.where.input), 1),
        "random only there: 3.bias, 3.weight",
    ),
    "likelihood": (
        lambda path: stored(path, bf.MonteCarloVI(), 1, "heteroscedastic", outputs=3),
        "likelihood is 'heteroscedastic' here and 'categorical' there",
    ),
    "likelihood option": (
        lambda path: stored(path, bf.MonteCarloVI(), 1, bf.likelihood("categorical", ignore_index=0)),
        "likelihood.ignore_index is 0 here and -100 there",
    ),
    "network": (
        lambda path: stored(path, bf.MonteCarloVI(), 1, "normal"),
        r"does not fit this network: 3.weight is \(3, 8\), in the file \(1, 8\)",
    ),
}


@pytest.mark.parametrize("what", OTHERS)
def test_what_does_not_belong_together(what: str, tmp_path: Path) -> None:
    _, first = stored(tmp_path / "first.safetensors", bf.MonteCarloVI(), seed=0)
    make, message = OTHERS[what]
    _, second = make(tmp_path / "second.safetensors")
    assert_refused([first, second], f"second.safetensors.*{message}")


def assert_refused(paths: list[Path], message: str, error: type[Exception] = ValueError) -> None:
    """The error says so, and the network is as it was: it can still become part of a model."""
    net = mlp()
    before = state(net)
    with pytest.raises(error, match=message):
        merge(paths, net)
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not any(module._forward_pre_hooks for module in net.modules())
    bf.bayesify(net, bf.Point())


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    _, first = stored(tmp_path / "first.safetensors", bf.Point(), seed=0)
    assert_refused(
        [first, tmp_path / "gone.safetensors"], "gone.safetensors does not exist", FileNotFoundError
    )
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(first.read_bytes()[:-20])
    assert_refused([first, bad], "bad.safetensors is damaged")


def test_wrong_arguments(tmp_path: Path) -> None:
    _, path = stored(tmp_path / "a.safetensors", bf.Point(), seed=0)
    with pytest.raises(ValueError, match="paths is empty"):
        merge([], mlp())
    with pytest.raises(TypeError, match="must be a list of files"):
        merge(str(path), mlp())
    model = bf.bayesify(mlp(), bf.Point())
    with pytest.raises(ValueError, match="already bayesified"):
        merge([path], model.net)
