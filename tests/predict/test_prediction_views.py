"""model.predict(augment=): every draw sees its own view of the inputs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Generator, Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import Loader, Normalisation, Split


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


def seeded(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


def noisy(x: Tensor, generator: Generator | None = None) -> Tensor:
    return x + torch.randn(x.shape, generator=generator)


def plain_noisy(x: Tensor) -> Tensor:
    return x + torch.randn(x.shape)


METHODS: dict[str, Any] = {
    "point": bf.Point,
    "mc_vi": bf.MonteCarloVI,
    "emp": lambda: bf.EnsemblePatching(3, spread=1.0),
    "members": lambda: bf.EnsemblePatching(3, "member", spread=1.0),
    "vdp": bf.DensityPropagation,
    "variance": bf.VarianceNetwork,
    "mc_dropout": bf.MCDropout,
    "deep_ensemble": lambda: bf.DeepEnsemble(bf.Point(), 2),
}


@pytest.mark.parametrize("augment", [noisy, plain_noisy])
@pytest.mark.parametrize("name", METHODS)
def test_every_draw_sees_its_own_view_and_a_generator_repeats_them(name: str, augment: Any) -> None:
    """The views are noted; there are as many as draws, all different, also for models without draws."""
    seen: list[Tensor] = []

    def noted(x: Tensor, **options: Any) -> Tensor:
        seen.append(augment(x, **options))
        return seen[-1]

    if augment is noisy:
        noted.__signature__ = __import__("inspect").signature(noisy)  # type: ignore[attr-defined]
    model = bf.bayesify(net(), METHODS[name](), num_data=10)
    x = torch.randn(5, 4)
    state = torch.get_rng_state()
    found = model.predict(x, 6, generator=seeded(), augment=noted, keep_samples=True)
    assert torch.equal(state, torch.get_rng_state())
    assert len(seen) == found.num_draws == len(found.samples) == 6
    assert len({tuple(view.flatten().tolist()) for view in seen}) == 6
    assert found.mutual_information.min() > 0
    again = model.predict(x, 6, generator=seeded(), augment=augment)
    assert torch.equal(found.probs, again.probs)
    assert not torch.equal(found.probs, model.predict(x, 6, generator=seeded(1), augment=augment).probs)
    untouched = model.predict(x, 6, generator=seeded())
    assert torch.equal(untouched.probs, model.predict(x, 6, generator=seeded(), augment=None).probs)


@pytest.mark.parametrize("name", ["point", "mc_vi", "emp"])
def test_draws_at_once_are_those_of_a_loop(name: str) -> None:
    model = bf.bayesify(net(), METHODS[name](), num_data=10)
    x = torch.randn(5, 4)
    at_once, loop = (
        model.predict(x, 8, generator=seeded(), augment=noisy, batched=batched, keep_samples=True).samples
        for batched in (True, False)
    )
    assert not model.posterior.vmap_refusal
    if name == "point":
        torch.testing.assert_close(at_once, loop)
    shifts = [noisy(torch.zeros(5, 4), g) for g in [Generator().manual_seed(_first_seed())] for _ in range(8)]
    if name == "point":
        with torch.no_grad():
            expected = torch.stack([model.net(x + shift).softmax(1) for shift in shifts])
        torch.testing.assert_close(loop, expected)


def _first_seed() -> int:
    return int(torch.randint(2**62, (), generator=seeded()))


def test_views_of_several_shapes_run_one_by_one() -> None:
    class Pooled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.map = nn.Linear(2, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.map(x.mean(2))

    sizes = iter((3, 5, 4, 3))
    model = bf.bayesify(Pooled(), "mc_vi", num_data=10)
    found = model.predict(torch.randn(4, 2, 6), 4, augment=lambda x: x[:, :, : next(sizes)])
    assert found.num_draws == 4 and not model.posterior.vmap_refusal


def test_stored_draws_are_taken_several_times() -> None:
    model = bf.bayesify(net(), bf.ThermostatMCMC(), num_data=10)
    optimizer = model.optimizer(lr=1e-3, num_steps=None)
    for _ in range(2):
        optimizer.zero_grad()
        model.loss(torch.randn(5, 4), torch.zeros(5).long()).total.backward()
        optimizer.step()
        model.collect()
    with model.uncautioned():
        assert model.predict(torch.randn(5, 4), 7).num_draws == 2
        assert model.predict(torch.randn(5, 4), 7, augment=noisy).num_draws == 7
        assert model.predict(torch.randn(5, 4), 7, augment=noisy, mode="stochastic").num_draws == 1


def test_loaders_tuples_and_means_have_views_too() -> None:
    model = bf.bayesify(net(), "mc_vi", num_data=10)
    x, y = torch.randn(9, 4), torch.randint(3, (9,))
    loader = DataLoader(TensorDataset(x, y), 5)
    assert len(model.predict(loader, 3, augment=noisy)) == 9
    assert model.predict(x, 3, augment=noisy, mode="deterministic").num_draws == 3
    assert model.predict((x,), 3, augment=lambda given: (noisy(given[0]),)).num_draws == 3
    plain, viewed = (bf.evaluate(model, loader, 3, generator=seeded(), augment=a) for a in (None, noisy))
    assert plain["nll"] != viewed["nll"]
    assert viewed == bf.evaluate(model, loader, 3, generator=seeded(), augment=noisy)
    assert bf.calibrate(model, loader, 3, seeded(), augment=noisy) != bf.calibrate(model, loader, 3, seeded())


def test_examples_that_are_not_finite_are_answered_as_without_views() -> None:
    model, x = bf.bayesify(net(), "emp", num_data=10), torch.randn(4, 4)
    x[2, 1] = torch.nan
    found = model.predict(x, 5, augment=noisy, on_nonfinite="nan")
    assert found.label.tolist()[2] == -1 and found.mean[[0, 1, 3]].isfinite().all()
    with pytest.raises(ValueError, match="the inputs of 1 of 4 examples"):
        model.predict(x, 5, augment=noisy)


def test_what_is_no_augmentation_is_named() -> None:
    model, x = bf.bayesify(net(), "mc_vi", num_data=10), torch.randn(4, 4)
    for mode in ("ensemble", "deterministic"):
        with pytest.raises(TypeError, match="augment='flip' must be a function of a batch of inputs"):
            model.predict(x, 5, augment="flip", mode=mode)
    with pytest.raises(
        ValueError, match=r"made inputs of \[2\] examples from inputs of \[4\]: it must return a view"
    ):
        model.predict(x, 5, augment=lambda x: x[:2])
    vdp = bf.bayesify(net(), "vdp", num_data=10)
    with pytest.raises(ValueError, match="augment= takes inputs without a variance"):
        vdp.predict(bf.Moments(x, torch.ones_like(x)), 5, augment=noisy)


def test_compiled_draws_see_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    model = bf.bayesify(net(), "mc_vi", num_data=10)
    found = model.predict(torch.zeros(5, 4), 6, augment=noisy, compile=True, keep_samples=True)
    assert found.num_draws == 6 and (found.samples.std(1) > 0).all()


def images() -> tuple[Loader, torch.Tensor]:
    """A loader that crops and flips, and some of its images as the network gets them."""
    raw = torch.randint(256, (24, 1, 8, 8), generator=seeded()).to(torch.uint8)
    split = Split(raw, torch.arange(24) % 3)
    of = Normalisation.of(raw)
    return Loader(split, 8, shuffle=True, normalise=of, augment="crop_flip"), of.inputs(raw[:6])


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))


VIEWED = {
    "mc_vi": bf.MonteCarloVI(),
    "emp": bf.EnsemblePatching(),
    "ensemble": bf.DeepEnsemble(num_members=3),
}


@pytest.mark.parametrize("name", VIEWED)
def test_training_with_crops_leaves_its_views_to_predictions(name: str, tmp_path: Path) -> None:
    loader, x = images()
    model = bf.bayesify(convolutions(), VIEWED[name], num_data=24)
    assert model.own_views() is None and model.augment is None
    bf.fit(model, loader, epochs=1, progress=False, seed=0)
    assert model.augment == loader.views() == model.own_views()
    assert "every draw sees a crop and flip of its own" in str(model.summary())
    asked = model.predict(x, 6, generator=seeded(), augment=model.augment).probs
    assert torch.equal(model.predict(x, 6, generator=seeded()).probs, asked)
    assert not torch.allclose(model.predict(x, 6, generator=seeded(), augment=None).probs, asked)
    plain, viewed = (
        bf.evaluate(model, loader, 6, generator=seeded(), augment=a) for a in (None, model.augment)
    )
    assert bf.evaluate(model, loader, 6, generator=seeded()) == viewed != plain
    bf.save(model, tmp_path / "m.safetensors")
    again = bf.load(tmp_path / "m.safetensors", convolutions())
    assert again.augment == model.augment
    assert torch.equal(again.predict(x, 6, generator=seeded()).probs, asked)
    bf.fit(model, Loader(loader_split(loader), 8), epochs=1, progress=False, seed=0)
    assert model.augment is None  # trained without, last


@pytest.mark.parametrize("method", [bf.Point(), bf.DensityPropagation()])
def test_one_pass_stays_one(method: bf.methods.Method) -> None:
    loader, x = images()
    model = bf.bayesify(convolutions(), method, num_data=24)
    bf.fit(model, loader, epochs=1, progress=False, seed=0)
    assert model.augment is not None and model.own_views() is None
    assert "crop and flip" not in str(model.summary())
    assert torch.equal(
        model.predict(x, 5, generator=seeded()).probs,
        model.predict(x, 5, generator=seeded(), augment=None).probs,
    )
    assert model.predict(x, 5, augment=model.augment).num_draws == 5


def test_one_draw_and_the_mean_weights_see_the_input_as_it_is() -> None:
    loader, x = images()
    model = bf.bayesify(convolutions(), bf.MonteCarloVI(), num_data=24)
    model.augment = loader.views()
    for options in ({"num_draws": 1}, {"mode": "stochastic"}, {"mode": "deterministic"}):
        as_it_is = model.predict(x, **options, generator=seeded(), augment=None)
        assert torch.equal(model.predict(x, **options, generator=seeded()).probs, as_it_is.probs)


def test_merged_models_keep_views_that_all_have(tmp_path: Path) -> None:
    loader, _ = images()
    for seed, views in enumerate((loader.views(), loader.views(), None)):
        torch.manual_seed(seed)
        model = bf.bayesify(convolutions(), bf.Point(), num_data=24)
        model.augment = views
        bf.save(model, tmp_path / f"{seed}.safetensors")
    files = [tmp_path / f"{seed}.safetensors" for seed in range(3)]
    assert bf.merge(files[:2], convolutions()).augment == loader.views()
    assert bf.merge(files, convolutions()).augment is None


def loader_split(loader: Loader) -> Split:
    """The examples of a loader, without its crops."""
    return Split(torch.cat([x for x, _ in loader]), torch.cat([y for _, y in loader]))
