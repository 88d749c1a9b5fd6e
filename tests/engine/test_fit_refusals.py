"""bf.fit: what it refuses, with a remedy."""

from typing import Any

import pytest
from quick_fit import quick
from training_job import loader, model

import bayesify as bf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0 must be at least 1"),
        ({"schedule": "cosin"}, "schedule='cosin' does not exist.*Did you mean 'cosine'"),
        ({"precision": "8-bit"}, "precision='8-bit' cannot be had here"),
        ({"accelerator": "warp"}, "accelerator='warp'"),
        ({"strategy": "magic"}, "strategy='magic'"),
        ({"ema": 1.5}, "ema=1.5 must lie between 0 and 1"),
        ({"kl_warmup": -1}, "kl_warmup=-1"),
        ({"tensorboard": True}, "tensorboard=True needs a folder"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options)


def test_patience_needs_validation() -> None:
    with pytest.raises(ValueError, match="needs a val_loader"):
        bf.fit(model("mc_vi"), loader("own"), epochs=1, patience=2)


def test_an_empty_loader() -> None:
    with pytest.raises(ValueError, match="train_loader is empty"):
        bf.fit(model("mc_vi"), [], epochs=1)  # type: ignore[arg-type]


def test_half_precision_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="use 'bf16-mixed' instead"):
        quick(precision="16-mixed")
