"""SWAG's posterior in a loop of one's own: what is kept, around what draws lie, and what files hold."""

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.checks import NonFiniteError
from bayesify.files.storage import header_of

X, Y = torch.randn(40, 3, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 2))


def trained(
    method: bf.SWAG | None = None, steps: int = 30, seed: int = 0
) -> tuple[bf.BayesianModule, list[dict[str, Tensor]]]:
    """A model after so many steps of its own optimiser, and the weights after each."""
    method = bf.SWAG(burn_in=5, every=2, rank=4) if method is None else method
    model = bf.bayesify(net(seed), method)
    optimizer, seen = model.optimizer(lr=0.1), []
    model.train()
    for _ in range(steps):
        optimizer.zero_grad()
        model.loss(X, Y).total.backward()
        optimizer.step()
        seen.append({name: p.detach().clone() for name, p in model.net.named_parameters()})
    return model, seen


def test_the_optimiser_keeps_iterates() -> None:
    model, seen = trained()
    kept = seen[6::2]  # the steps 7, 9, ...
    posterior = model.posterior
    assert (posterior.iterates.count, posterior.steps) == (12, 30)
    mean = posterior.mean(model.net)
    for name, value in mean.items():
        path = torch.stack([w[name] for w in kept]).double()
        torch.testing.assert_close(value.double(), path.mean(0), rtol=1e-5, atol=1e-7)
        v = posterior.iterates.squares[name] / 12
        torch.testing.assert_close(v.double(), path.var(0, correction=0), rtol=1e-4, atol=1e-9)
        running = path.cumsum(0) / torch.arange(1, 13).view(-1, *[1] * (path.dim() - 1))
        columns = posterior.iterates.columns[name].sort(0)[0]  # a ring: the oldest is not first
        torch.testing.assert_close(columns.double(), (path - running)[-4:].sort(0)[0], rtol=1e-4, atol=1e-6)
    assert "normal by 12 iterates, rank 4" in str(model.summary())


def test_draws_lie_around_the_mean_and_not_the_iterate() -> None:
    """4,000 draws: a mean is off by its standard error times `5.5` for one weight in 26 of one seed of a million."""
    model, _ = trained()
    posterior, n = model.posterior, 4000
    drawn = posterior.draw(0, n, torch.Generator().manual_seed(1))
    for name, var in posterior.covariance.variance().items():
        off = drawn[name].mean(0) - posterior.iterates.means[name]
        assert (off.abs() <= 5.5 * (var / n).sqrt() + 1e-6).all()
    assert any(
        (p - posterior.iterates.means[name]).abs().max() > 1e-3 for name, p in model.net.named_parameters()
    )
    probs = model.predict(X, 20, generator=torch.Generator().manual_seed(2), batched=True).probs
    weights = posterior.draw(0, 20, torch.Generator().manual_seed(2))
    model.eval()
    with torch.no_grad():
        each = [
            torch.func.functional_call(model.net, {k: w[i] for k, w in weights.items()}, (X,))
            for i in range(20)
        ]
    torch.testing.assert_close(probs, torch.stack(each).softmax(-1).mean(0))


def test_batch_norm_learns_of_the_mean_by_passes_without_gradients() -> None:
    model, _ = trained()
    mean = model.mean_net()
    batches = [X[:20], X[20:]]
    torch.optim.swa_utils.update_bn(batches, model)
    torch.optim.swa_utils.update_bn(batches, mean)
    torch.testing.assert_close(model.net[1].running_mean, mean[1].running_mean)
    torch.testing.assert_close(model.net[1].running_var, mean[1].running_var)
    model.train()
    torch.testing.assert_close(model(X), model.net.train()(X))  # with gradients it is the iterate
    model.eval()
    with torch.no_grad():
        spread = torch.stack([model(X) for _ in range(3)]).std(0)
    assert (spread > 0).any()


def test_collect_keeps_one_and_too_few_are_said() -> None:
    model = bf.bayesify(net(), bf.SWAG())
    for count in range(2):
        with pytest.warns(UserWarning, match=r"no covariance yet.*bf\.fit\(model.*model\.collect\(\)"):
            model.predict(X)
        model.cautioned = False
        torch.testing.assert_close(model.posterior.draw(0, 2)["0.weight"][1], model.net[0].weight.detach())
        model.collect()
        assert model.posterior.iterates.count == count + 1
    with torch.no_grad():
        model.net[0].weight.add_(1)
    model.collect()
    model.predict(X)
    torch.testing.assert_close(model.mean_net()[0].weight, model.net[0].weight - 2 / 3)


def test_weights_that_are_not_random_are_averaged_too() -> None:
    model, seen = trained(bf.SWAG(where=bf.where.output, burn_in=5, every=2))
    drawn = model.posterior.draw(0, 3)
    expected = torch.stack([w["0.weight"] for w in seen[6::2]]).mean(0)
    for each in drawn["0.weight"]:
        torch.testing.assert_close(each, expected)
    assert drawn["3.weight"].std(0).min() > 0
    assert model.posterior.covariance.variance().keys() == {"3.weight", "3.bias"}


def test_where_nothing_will_be_kept_is_said_at_once() -> None:
    model = bf.bayesify(net(), bf.SWAG())
    with pytest.warns(
        bf.SamplingWarning, match=r"no iterate will be kept: burn_in=None and num_kept=\d+.*num_steps="
    ):
        model.optimizer(lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.optimizer(lr=0.1, num_steps=100)
        model.optimizer(lr=0.1, num_steps=None)
        bf.bayesify(net(), bf.SWAG(burn_in=0, every=3)).optimizer()


def test_a_new_run_keeps_iterates_of_its_own() -> None:
    model, _ = trained()
    model.optimizer(lr=0.1, num_steps=50)
    assert (model.posterior.iterates.count, model.posterior.steps) == (0, 0)


def test_diverged_weights_are_not_taken_in() -> None:
    model, _ = trained()
    with torch.no_grad():
        model.net[0].weight.fill_(torch.nan)
    with pytest.raises(
        NonFiniteError, match=r"0\.weight is not finite after step 30: take a smaller learning rate"
    ):
        model.collect()


def test_copies_and_other_dtypes() -> None:
    model, _ = trained()
    other = copy.deepcopy(model)
    other.posterior.collect()
    assert (model.posterior.iterates.count, other.posterior.iterates.count) == (12, 13)
    assert other.posterior.covariance is other.posterior.iterates
    model.double()
    assert model.posterior.iterates.means["0.weight"].dtype == torch.float64
    assert model.posterior.draw(0, 2)["0.weight"].dtype == torch.float64


@pytest.mark.parametrize(
    "method",
    [
        bf.SWAG(burn_in=5, every=2, rank=4),
        bf.SWAG(burn_in=5, every=2, rank=40, deviation_dtype="bfloat16"),
        bf.SWAG(),
    ],
)
def test_files(method: bf.SWAG, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        model, _ = trained(method)
    path = tmp_path / "model.safetensors"
    bf.save(model, path)
    again = bf.load(path, net(seed=5))
    assert header_of(again) == header_of(model)
    mine, theirs = model.state_dict(), again.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(
        torch.equal(value, theirs[name]) and value.dtype == theirs[name].dtype for name, value in mine.items()
    )
    if method.every is not None:
        first, second = (
            m.predict(X, 7, generator=torch.Generator().manual_seed(0)).probs for m in (model, again)
        )
        assert torch.equal(first, second)


def test_members_and_merged_models(tmp_path: Path) -> None:
    paths = []
    for seed in range(2):
        model, _ = trained(seed=seed)
        paths.append(tmp_path / f"{seed}.safetensors")
        bf.save(model, paths[-1])
    merged = bf.merge(paths, net(7))
    alone = [bf.load(path, net(8)) for path in paths]
    generator = torch.Generator().manual_seed(0)
    both = merged.predict(X, 20, generator=generator).probs
    generator.manual_seed(0)
    expected = torch.stack([m.predict(X, 10, generator=generator).probs for m in alone]).mean(0)
    torch.testing.assert_close(both, expected)
    bf.save(merged, tmp_path / "both.safetensors")
    again = bf.load(tmp_path / "both.safetensors", net(9))
    generator.manual_seed(0)
    assert torch.equal(again.predict(X, 20, generator=generator).probs, both)


def test_options_are_checked() -> None:
    for wrong, message in (
        ({"rank": 1}, "rank=1"),
        ({"num_kept": 1}, "num_kept=1"),
        ({"burn_in": 1.5}, r"burn_in=1\.5 must be a whole number of steps, or a share below 1"),
        ({"deviation_dtype": "float8"}, "deviation_dtype='float8'.*bfloat16"),
    ):
        with pytest.raises(ValueError, match=message):
            bf.SWAG(**wrong)
