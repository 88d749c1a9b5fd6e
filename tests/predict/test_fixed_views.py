"""Frozen predictors whose draws see views of the input."""

from pathlib import Path

import pytest
import torch
from torch import Generator, nn

import bayesify as bf
from bayesify.data.augment import crop_flip

X = torch.randn(6, 1, 8, 8, generator=Generator().manual_seed(0))
FLIP = bf.data.CropFlip(2, 0.5)


def net(dropout: bool = False) -> nn.Module:
    torch.manual_seed(0)
    more = [nn.Dropout(0.3)] if dropout else []
    return nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), *more, nn.Linear(144, 3))


@pytest.mark.parametrize("name", ["point", "mc_vi", "emp", "deep_ensemble", "mc_dropout"])
def test_every_draw_sees_one_view_of_its_own(name: str) -> None:
    """Which is the same for all examples, in every call and at every place of the batch."""
    model = bf.bayesify(net(name == "mc_dropout"), name, num_data=60)
    frozen = model.freeze(10, Generator().manual_seed(1), augment=FLIP)
    assert frozen.num_draws == 10
    found = frozen.predict(X, keep_samples=True)
    assert torch.equal(found.mean, frozen.predict(X).mean)
    torch.testing.assert_close(frozen(X[3:]).probs, frozen(X).probs[3:])
    assert len({tuple(row) for row in found.samples[:, 0].tolist()}) > 4  # some views are of one kind
    plain = model.freeze(10, Generator().manual_seed(1), augment=None).predict(X, keep_samples=True)
    assert not torch.allclose(plain.mean, found.mean, atol=1e-4)
    if name == "point":
        _, rows = next(frozen.core.stream(0, 10, 10))
        with torch.no_grad():
            seen = [crop_flip(X - 0.5, choice.expand(6), 2) + 0.5 for choice in rows["choice"]]
            wanted = torch.stack([model.net(x).softmax(1) for x in seen])
        torch.testing.assert_close(found.samples, wanted)


def test_a_model_trained_with_crops_is_frozen_with_views(tmp_path: Path) -> None:
    model = bf.bayesify(net(), "mc_vi", num_data=60)
    model.augment = FLIP
    given = [model.freeze(4, Generator().manual_seed(1), **o) for o in ({}, {"augment": FLIP})]
    torch.testing.assert_close(given[0](X).probs, given[1](X).probs)
    plain = model.freeze(4, Generator().manual_seed(1), augment=None)
    assert not torch.allclose(plain(X).probs, given[0](X).probs)
    program = bf.export(model, X[:2], tmp_path / "m.pt2", num_draws=4, seed=1)
    torch.testing.assert_close(program.module()(X)["probs"], given[0](X).probs)


def test_what_has_no_fixed_view_is_refused() -> None:
    model = bf.bayesify(net(), "mc_vi", num_data=60)
    with pytest.raises(TypeError, match="frozen predictors have fixed views"):
        model.freeze(4, augment=torch.flip)
    one_pass = bf.bayesify(net(), "vdp", num_data=60)
    with pytest.raises(ValueError, match="vdp predicts by one pass"):
        one_pass.freeze(4, augment=FLIP)
