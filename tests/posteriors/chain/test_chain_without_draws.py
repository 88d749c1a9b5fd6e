"""A chain before its first draw: what it refuses, and what it says of its predictions."""

import pytest
import torch
from test_chain import DATA, make, make_net, sample

import bayesify as bf
from bayesify.predict.prediction import shares


def test_no_draw_before_the_first() -> None:
    model = make()
    with pytest.raises(
        RuntimeError, match="no draws yet: train longer than the burn-in, or .* model.collect"
    ):
        model.draw()
    with pytest.raises(RuntimeError, match="no draws yet"):
        model.mean_net()


@pytest.mark.parametrize("keep", ["draws", "moments"])
def test_a_prediction_without_draws_is_that_of_the_present_weights_and_says_so(keep: str) -> None:
    """Once for a model, whatever the number of batches."""
    model = make(keep=keep)
    sample(model, 3)
    x, y = DATA
    batches = [(x[:8], y[:8]), (x[8:], y[8:])]
    with pytest.warns(UserWarning, match="no draws yet, after 3 steps: .* or keep .* model.collect") as said:
        bf.evaluate(model, batches)
    assert len(said) == 1
    torch.testing.assert_close(
        model.predict(x).probs, model.net(x).softmax(-1).detach()
    )  # and nothing is said
    kept = make(keep=keep)
    kept.collect()
    kept.predict(x)


def test_members_without_draws_say_so_once() -> None:
    method = bf.DeepEnsemble(bf.ThermostatMCMC(), num_members=3)
    model = bf.bayesify(make_net(), method, num_data=32)
    with pytest.warns(UserWarning, match="no draws yet") as said:
        model.predict(DATA[0])
    assert len(said) == 1


@pytest.mark.parametrize("keep", ["draws", "moments"])
def test_validation_before_the_first_draw_is_silent(keep: str) -> None:
    """What is said of the finished model is not lost by it."""
    model = make(keep=keep, burn_in=1000, every=1)
    pairs = torch.utils.data.TensorDataset(*DATA)
    loader = torch.utils.data.DataLoader(pairs, 16)
    bf.fit(model, loader, loader, epochs=2, lr=1e-3, accelerator="cpu", progress=False)
    with pytest.warns(UserWarning, match="no draws yet, after 4 steps"):
        model.predict(DATA[0])


def test_the_number_of_passes_is_that_of_the_draws_there_are() -> None:
    stored, moments = make(burn_in=0, every=1), make(burn_in=0, every=1, keep="moments")
    assert shares(stored, 20) == shares(moments, 20) == (1, 1)
    for model in (stored, moments):
        sample(model, 3)
    assert (shares(stored, 20), shares(stored, 2), shares(moments, 20)) == ((1, 3), (1, 2), (1, 20))
    method = bf.DeepEnsemble(bf.ThermostatMCMC(burn_in=0, every=1), num_members=2)
    several = bf.bayesify(make_net(), method, num_data=32)
    sample(several, 3)
    assert shares(several, 20) == (2, 3)
    assert several.predict(DATA[0], num_draws=20).num_draws == 6


def test_weights_that_the_prior_forbids() -> None:
    with pytest.raises(ValueError, match=r"kl=inf\): the prior gives some of the weights no probability"):
        make(prior="gamma").loss(*DATA)
