"""Draws of a prediction one by one, at once and compiled: the same law."""

from typing import Any

import pytest
import torch
from predictive_cases import assert_equal_means, generator, make
from torch import nn

import bayesify as bf
from bayesify.posteriors import Call
from bayesify.predict.prediction import _chunk, outputs


@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_batched_draws_have_the_same_distribution_as_looped_ones(sampling: str) -> None:
    model, x = make("normal", 1, sampling=sampling), torch.randn(7, 4)
    batched = model.predict(x, 400, keep_samples=True, generator=generator(1), batched=True)
    looped = model.predict(x, 400, keep_samples=True, generator=generator(2), batched=False)
    assert_equal_means(batched.samples, looped.samples)
    assert_equal_means(batched.samples.square(), looped.samples.square())


def test_batched_draws_equal_looped_ones_with_the_same_weights() -> None:
    model, x = make().eval(), torch.randn(7, 4)
    with torch.no_grad():
        (batched,) = outputs(model, Call((x,), {}, generator(3)), 0, 6, batched=True)
        assert model.posterior.vmap_refusal == ""
        weights = model.posterior.draw(0, 6, generator(3))
        for i, output in enumerate(batched):
            one = {name: value[i] for name, value in weights.items()}
            torch.testing.assert_close(output, model.posterior.run_draw(model.net, Call((x,), {}), one))


def test_predict_agrees_with_averaging_forward_passes() -> None:
    """The mean of 400 draws by predict and of 400 plain forward passes."""
    model, x = make("normal", 1).eval(), torch.randn(7, 4)
    pred = model.predict(x, 400, keep_samples=True, generator=generator(1))
    with torch.no_grad():
        passes = torch.stack([model(x, generator=generator(1000 + i)) for i in range(400)])
    assert_equal_means(pred.samples, passes)


def test_compiled_prediction_refuses_a_generator() -> None:
    model = make()
    with pytest.raises(ValueError, match="compile=True cannot take a generator"):
        model.predict(torch.randn(2, 4), 3, compile=True, generator=generator(1))


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.usefixtures("compile_by_tracing")
def test_compiled_prediction_agrees_with_the_plain_one(batched: bool) -> None:
    """Means of 400 draws each."""
    model, x = make("normal", 1).eval(), torch.randn(7, 4)
    compiled = model.predict(x, 400, keep_samples=True, compile=True, batched=batched)
    plain = model.predict(x, 400, keep_samples=True, batched=batched)
    assert_equal_means(compiled.samples, plain.samples)
    assert compiled.spread.min() > 0


def test_compiled_prediction_of_draws_at_once_returns_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    """One function per number of draws, whatever the values: it is traced once for inputs of one shape."""
    compile_, traced = torch.compile, []

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        traced.append(graph)
        return graph.forward

    monkeypatch.setattr(
        torch,
        "compile",
        lambda f, mode, dynamic: compile_(f, backend=backend, dynamic=dynamic, fullgraph=True),
    )
    torch.manual_seed(0)
    model = make("categorical", 3)
    predictions = [model.predict(torch.randn(2, 4), 50, compile=True, batched=True) for _ in range(3)]
    assert len(traced) == 1
    for prediction in predictions:
        assert prediction.num_draws == 50
        assert prediction.per_draw is None
        torch.testing.assert_close(prediction.probs.sum(1), torch.ones(2))
        assert prediction.votes is not None
        torch.testing.assert_close(prediction.votes.sum(1), torch.ones(2))
        assert prediction.spread.min() > 0
    assert not torch.equal(predictions[0].mean, predictions[1].mean)


def test_draws_that_share_most_weights_run_as_a_larger_batch_on_an_accelerator() -> None:
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 900, 3))
    patched = bf.bayesify(net, bf.EnsemblePatching(where=bf.where.norm)).to("meta")
    for batch, chunk in [(1, 20), (128, 20), (512, 5), (4096, 1)]:
        x = torch.empty(batch, 3, 32, 32, device="meta")
        for compiled in (False, True):
            assert _chunk(patched, Call((x,), {}), 20, None, compiled) == chunk
    assert _chunk(patched, Call((torch.empty(128, 3, 32, 32),), {}), 20, None) == 1
