"""model.freeze: fixed draws, the numbers of `predict` at the same draws, from any thread, compiled, with a cost."""

import copy
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from frozen_cases import CASES, METHODS, cnn, example, made, mlp
from torch import Tensor, nn

import bayesify as bf
from bayesify.passes.jacobian import linear_draw
from bayesify.posteriors.dropout import SEED
from bayesify.predict.accumulation import Accumulator, one_more
from bayesify.predict.prediction import of_draws
from bayesify.weights import as_call

pytestmark = pytest.mark.filterwarnings("ignore:batch norm:UserWarning")
NUM_DRAWS = 6


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def same_draws(model: bf.BayesianModule, x: Tensor) -> bf.Predictive:
    """`predict` with the draws that `freeze` takes, whatever pass predictions take."""
    if model.posterior.sampling == "moments":
        return model.predict(x, 2_000, generator=seeded())
    linear = model.posterior.linearised
    accumulator = Accumulator(model.likelihood, matched=linear)
    if linear:
        law = model.posterior.linear_law(model.net)
        moves = law.deviations(NUM_DRAWS, seeded())
        scale = (NUM_DRAWS / (NUM_DRAWS - 1)) ** 0.5
        moves = {name: scale * (rows - rows.mean(0)) for name, rows in moves.items()}
        for i in range(NUM_DRAWS):
            move = {name: rows[i] for name, rows in moves.items()}
            drawn = linear_draw(model.net, law.slots, law.weights, move, as_call(x), model.pick)
            accumulator.add(one_more(drawn.detach()))
        return accumulator.result()
    if not model.posterior.predicts_by_pass:
        return model.predict(x, NUM_DRAWS, generator=seeded(), batched=True)
    with torch.no_grad():
        for chunk in of_draws(model, as_call(x, generator=seeded()), 0, NUM_DRAWS, True):
            accumulator.add(chunk)
    return accumulator.result()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES)
def test_frozen_is_predict_at_the_same_draws(case: str, method: str) -> None:
    model, x = made(case, method), example(case)
    frozen = model.freeze(NUM_DRAWS, seeded())
    found, expected = frozen(x), same_draws(model, x)
    names = ("mean", "variance", "epistemic")
    if case != "regression":
        names = ("probs", "entropy", "mutual_information")
    assert found._fields == names
    # of vdp other draws with the same mean and variance: 6 of them miss third moments of the softmax
    tolerance = {"rtol": 0.05, "atol": 0.01} if method == "vdp" else {"rtol": 1e-4, "atol": 1e-5}
    for name in names:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), **tolerance)
    whole = frozen.predict(x)
    assert all(torch.equal(getattr(whole, name), getattr(found, name)) for name in names)
    again = copy.deepcopy(frozen)(x)
    assert all(
        torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(found, frozen(x), again, strict=True)
    )


@pytest.mark.parametrize("method", ["mc_vi", "emp", "vdp", "laplace", "deep_ensemble"])
def test_a_frozen_predictor_stands_apart_from_its_model(method: str) -> None:
    model, x = made("mlp", method), example("mlp")
    frozen = model.freeze(NUM_DRAWS)
    before = frozen(x).probs
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(frozen(x).probs, before)
    frozen.train()
    assert not any(module.training for module in frozen.modules())
    assert not any(parameter.requires_grad for parameter in frozen.parameters())


def test_one_by_one_and_at_once_agree_and_say_their_passes() -> None:
    model, x = made("cnn", "emp"), example("cnn")
    frozen = model.freeze(8)
    found = {}
    for batched, passes in ((True, 1), (False, 8)):
        frozen.batched = batched
        found[batched] = frozen(x).probs
        cost = frozen.cost(x)
        assert (cost.num_passes, cost.num_draws) == (passes, 8) and cost.milliseconds > 0
        assert f"8 draws in {passes} passes of the network" in str(cost)
    torch.testing.assert_close(found[True], found[False])


def test_what_draws_share_is_stored_once() -> None:
    """20 draws of two patched norm tensors with 5 components: 5 of each, and the network once."""
    net = cnn()
    plain = sum(t.nbytes for t in net.state_dict().values())
    model = bf.bayesify(net.eval(), bf.EnsemblePatching(num_components=5, where=bf.where.norm), num_data=9)
    patched = sum(p.nbytes for p in model.net[1].parameters())
    index = 2 * 20 * 8
    assert model.freeze(20).num_bytes <= plain + 4 * patched + index
    ensemble = bf.bayesify(mlp(), bf.DeepEnsemble(num_members=3), num_data=9)
    each = sum(p.nbytes for p in mlp().parameters())
    assert ensemble.freeze(20).num_bytes == 3 * each


def test_the_trunk_before_the_first_random_weight_runs_once() -> None:
    class Counted(nn.Linear):
        calls = 0

        def forward(self, input: Tensor) -> Tensor:
            Counted.calls += 1
            return super().forward(input)

    net = nn.Sequential(Counted(4, 8), nn.ReLU(), nn.Linear(8, 3))
    model = bf.bayesify(net, bf.MonteCarloVI(where=bf.where.output), num_data=9).eval()
    for batched in (True, False):
        frozen = model.freeze(10)
        frozen.batched = batched
        Counted.calls = 0
        frozen(torch.randn(5, 4))
        assert Counted.calls == 1, batched


def test_inference_mode_changes_nothing() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(where=bf.where.output), num_data=9).eval()
    frozen = model.freeze(5, seeded())
    for frozen.batched in (True, False):
        with torch.inference_mode():
            x = torch.ones(5, 4)
            inside = frozen(x).probs
        assert torch.equal(inside, frozen(x).probs)


def test_many_threads_get_what_one_gets() -> None:
    model = made("cnn", "mc_vi")
    frozen = model.freeze(5)
    frozen.batched = False
    batches = [example("cnn") for _ in range(8)]
    alone = [frozen(x).probs for x in batches]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            together = [*pool.map(lambda x: frozen(x).probs, batches)]
            assert all(map(torch.equal, alone, together))


@pytest.mark.parametrize(("method", "backend"), [("mc_vi", "aot_eager"), ("emp", "eager"), ("vdp", "eager")])
def test_it_compiles_in_one_graph(method: str, backend: str) -> None:
    torch._dynamo.reset()
    model, x = made("cnn", method), example("cnn")
    frozen = model.freeze(4)
    expected = frozen(x)
    found = torch.compile(frozen, backend=backend, fullgraph=True)(x)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_calibration_stays() -> None:
    model, x = made("mlp", "mc_vi"), example("mlp")
    model.calibration = 2.0
    expected = model.predict(x, NUM_DRAWS, generator=seeded(), batched=True)
    found = model.freeze(NUM_DRAWS, seeded())(x)
    for name in found._fields:
        torch.testing.assert_close(getattr(found, name), getattr(expected, name), rtol=1e-4, atol=1e-5)


def test_dropout_layers_have_the_masks_of_draws_as_plain_networks() -> None:
    net = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.5), nn.SELU(), nn.AlphaDropout(0.2), nn.Linear(16, 3))
    model, x = bf.bayesify(net.eval(), bf.MCDropout(), num_data=9), torch.randn(5, 4)
    frozen = model.freeze(3, seeded())
    with pytest.raises(RuntimeError, match="has not seen an input yet: call it once"):
        torch.compile(frozen, backend="eager", fullgraph=True)(x)
    seeds = model.posterior.draw(0, 3, seeded())[SEED]
    with torch.no_grad():
        plain = [model.posterior.install(copy.deepcopy(net), {SEED: seed})(x).softmax(1) for seed in seeds]
    torch.testing.assert_close(frozen(x).probs, torch.stack(plain).mean(0))
    torch.testing.assert_close(
        frozen(x[:2]).probs, frozen(x).probs[:2]
    )  # masks are the same for all examples


def test_a_dropout_layer_of_two_shapes_is_named() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.drop = nn.Linear(4, 8), nn.Linear(8, 3), nn.Dropout(0.5)

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.drop(self.a(self.drop(x))))

    frozen = bf.bayesify(Twice().eval(), bf.MCDropout(), num_data=9).freeze(3)
    with pytest.raises(ValueError, match=r"'drop' is used for shapes \(4,\) and \(8,\) of an example"):
        frozen(torch.randn(5, 4))


def test_outputs_of_another_shape_than_the_noise_are_named() -> None:
    model = bf.bayesify(nn.Linear(4, 3), bf.DensityPropagation(), num_data=9).eval()
    frozen = model.freeze(4)
    frozen(torch.randn(2, 5, 4))
    with pytest.raises(
        ValueError, match=r"shape \(6, 3\) for each example, in the first call it was \(5, 3\)"
    ):
        frozen(torch.randn(2, 6, 4))


def test_recurrent_networks_run_one_by_one() -> None:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell, self.out = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.cell(x)[0][:, -1])

    model, x = bf.bayesify(Last(), bf.MonteCarloVI(), num_data=9).eval(), torch.randn(2, 5, 4)
    frozen = model.freeze(4, seeded())
    expected = model.predict(x, 4, generator=seeded(), batched=True)
    torch.testing.assert_close(frozen(x).probs, expected.probs)
    assert frozen.cost(x).num_passes == 4


def test_loaders_samples_and_what_is_not_finite() -> None:
    model, x = made("mlp", "mc_vi"), example("mlp", 6)
    frozen = model.freeze(4)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x), 4)
    kept = frozen.predict(loader, keep_samples=True)
    assert kept.samples.shape == (4, 6, 3)
    torch.testing.assert_close(kept.probs, frozen(x).probs)
    x[2] = torch.nan
    with pytest.raises(ValueError, match=r"1 of 6 examples \(counted from 0: 2\)"):
        frozen.predict(x)
    assert frozen(x).probs[2].isnan().all()


def test_num_draws_is_checked_and_a_chain_without_draws_says_so() -> None:
    model = bf.bayesify(mlp(), "atmc", num_data=9)
    with pytest.raises(ValueError, match="num_draws"):
        model.freeze(0)
    with pytest.warns(UserWarning, match="the chain has no draws yet"):
        assert model.freeze(5).num_draws == 1


def test_moving_it_reaches_what_threads_use() -> None:
    frozen = made("mlp", "mc_vi").freeze(4)
    frozen(example("mlp"))
    wide = frozen.double()
    assert wide(example("mlp").double()).probs.dtype == torch.float64


def test_many_draws_of_a_frozen_laplace_have_the_variance_that_predict_has() -> None:
    """4,000 draws: the relative standard error of a variance is √(2 / 4,000) = 2.2 %; 10 numbers, failure 1e-6."""
    model, x = made("regression", "laplace"), example("regression")
    exact = model.predict(x).epistemic
    found = model.freeze(4_000, seeded())(x).epistemic
    torch.testing.assert_close(found, exact, rtol=0.13, atol=0.0)


def test_the_mean_of_a_frozen_laplace_is_the_networks_at_any_number_of_draws() -> None:
    model, x = made("regression", "laplace"), example("regression")
    for num_draws in (2, 5):
        frozen = model.freeze(num_draws, seeded())(x)
        torch.testing.assert_close(frozen.mean, model.predict(x).mean, rtol=1e-5, atol=1e-5)
        assert (frozen.epistemic > 0).all()
    alone = model.freeze(1, seeded())(x)
    assert (alone.epistemic == 0).all() and not torch.allclose(alone.mean, model.predict(x).mean)


def test_members_of_an_ensemble_are_each_linearised_at_their_own_weights() -> None:
    torch.manual_seed(0)
    model = bf.bayesify(mlp(), bf.DeepEnsemble(bf.Laplace("diag"), num_members=3), num_data=50)
    x = example("mlp")
    bf.fit(model, [(x, torch.zeros(5).long())], progress=False)
    frozen = model.freeze(3_000, seeded())
    assert frozen.num_draws == 3_000 and frozen.cost(x).num_passes >= 3
    found = model.predict(x, 3_000, generator=seeded()).probs
    torch.testing.assert_close(frozen(x).probs, found, rtol=0.0, atol=0.05)  # 5 · .5 / √3,000
