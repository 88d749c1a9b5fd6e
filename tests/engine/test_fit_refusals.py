"""bf.fit: what it refuses, with a remedy."""

import math
from typing import Any

import pytest
import torch
from quick_fit import quick
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from training_job import loader, model

import bayesify as bf
from bayesify.engine import fit_members


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs=0 must be a whole number"),
        ({"accumulate": 0}, "accumulate=0"),
        ({"steps_per_epoch": 0}, "steps_per_epoch=0 must be a whole number of at least 1 or None"),
        ({"schedule": "cosin"}, "schedule='cosin' does not exist.*Did you mean 'cosine'"),
        ({"precision": "8-bit"}, "precision='8-bit' cannot be had here"),
        ({"accelerator": "warp"}, "accelerator='warp'"),
        ({"strategy": "magic"}, "strategy='magic'"),
        ({"ema": 1.5}, r"ema=1.5 must be a number between 0 and 1 or None \(off\)"),
        ({"kl_warmup": -1}, "kl_warmup=-1 must be a number of at least 0"),
        ({"kl_warmup": math.nan}, "kl_warmup=nan must be a number of at least 0"),
        ({"clip_norm": 0}, r"clip_norm=0 must be a number above 0 or None \(the recipe's, or no limit\)"),
        ({"clip_norm": -1.0}, "clip_norm=-1.0 must be a number above 0"),
        ({"lr": math.inf}, "lr=inf must be a number above 0"),
        ({"compile": "yes"}, "compile='yes' must be true, false or 'auto'"),
        ({"optimizer": "adamm"}, "optimizer='adamm' does not exist.*Did you mean 'adam'"),
        ({"optimizer": 3}, "optimizer=3 must be a text, an Optimizer, a function or None"),
        (
            {"optimizer": "adam", "momentum": 0.9},
            "momentum=0.9 is of optimizer='sgd', not of 'adam': leave it out",
        ),
        (
            {"optimizer": lambda p: torch.optim.SGD(p, lr=0.1), "weight_decay": 0.1},
            "weight_decay=0.1 beside an optimizer of your own, which has its own: give one of them",
        ),
        ({"recipe": "vision"}, "recipe='vision' does not exist"),
        ({"momentum": 1}, "momentum=1 must be a number of at least 0 and below 1"),
        ({"weight_decay": -1}, "weight_decay=-1 must be a number of at least 0"),
        ({"frozen_norm": 1}, "frozen_norm=1 must be a number of at least 0 and below 1"),
        ({"devices": 0}, "devices=0.* cannot be had here"),
        ({"tensorboard": True}, "tensorboard=True needs a folder"),
        ({"folder": ""}, "folder='' must not be empty: give a text, a Path or None"),
        ({"lr": 1e300}, r"lr=1e\+300 must be a number above 0"),
        ({"devices": -1, "accelerator": "cpu"}, "devices=-1.* cannot be had here"),
        ({"devices": "2x", "accelerator": "cpu"}, "devices='2x'.* cannot be had here"),
        ({"strategy": "deepspeed"}, "strategy='deepspeed'.* cannot be had here"),
        (
            {"on_epoch": lambda model, epoch: {"loss": 0.0}},
            r"on_epoch returned \['loss'\], which the row has",
        ),
        ({"on_epoch": lambda model, epoch: {"seconds": 0.0}}, r"on_epoch returned \['seconds'\]"),
    ],
)
def test_bad_options(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(**options)


def test_a_network_that_is_not_bayesian() -> None:
    with pytest.raises(
        TypeError, match=r"model=Linear must be what bf.bayesify returned: bf.fit\(bf.bayesify\("
    ):
        bf.fit(nn.Linear(2, 2), loader("own"), epochs=1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"optimizer": lambda parameters: None},
            "optimizer=.* returned None: it must return a torch.optim.Opt",
        ),
        ({"on_epoch": lambda model, epoch: 3}, "on_epoch returned 3: it must return a dict"),
        ({"val_loader": 3}, "val_loader=3 must give batches"),
        ({"train_loader": 3}, "train_loader=3 must give batches"),
    ],
)
def test_things_of_the_wrong_kind(options: dict[str, Any], message: str) -> None:
    settings = {"model": model("mc_vi"), "train_loader": loader("own"), "epochs": 1, "progress": False}
    with pytest.raises(TypeError, match=message):
        bf.fit(**{**settings, **options})


def test_a_seed_may_be_any_whole_number() -> None:
    assert quick(epochs=1, seed=2**70)[0]["loss"] == quick(epochs=1, seed=2**70)[0]["loss"]


def test_patience_needs_validation() -> None:
    with pytest.raises(ValueError, match="needs a val_loader"):
        bf.fit(model("mc_vi"), loader("own"), epochs=1, patience=2)


def test_calibration_needs_validation() -> None:
    with pytest.raises(ValueError, match="calibrate=True needs a val_loader: examples that the model is not"):
        bf.fit(model("mc_vi"), loader("own"), epochs=1, calibrate=True)
    with pytest.raises(ValueError, match="calibrate=True needs a val_loader: examples that the members are"):
        fit_members(
            lambda: model("point"), loader("own"), num_members=2, folder=".", seed=0, epochs=1, calibrate=True
        )


def test_calibration_needs_other_data_than_training() -> None:
    batches = loader("own")
    same = DataLoader(loader("torch").dataset, 40)
    for train, val in ((batches, batches), (DataLoader(same.dataset, 16, shuffle=True), same)):
        with pytest.raises(
            ValueError, match="calibrate=True with a val_loader that goes through the training"
        ):
            bf.fit(model("point"), train, val, epochs=1, calibrate=True)


def test_a_network_of_which_nothing_trains() -> None:
    frozen = bf.bayesify(nn.Linear(6, 2).requires_grad_(False), "point")
    with pytest.raises(ValueError, match="no parameter of the model trains, all are frozen"):
        bf.fit(frozen, loader("own"), epochs=1)


def test_batch_norm_and_a_batch_of_one_example() -> None:
    x, y = torch.randn(9, 6), torch.arange(9) % 2
    with pytest.raises(
        ValueError, match="a batch of one example, as batch 3 of train_loader is: give it drop_last"
    ):
        bf.fit(model("mc_vi"), DataLoader(TensorDataset(x, y), 4), epochs=1, progress=False)


def test_iterators_have_no_second_epoch() -> None:
    for place in ("train_loader", "val_loader"):
        loaders = {"train_loader": loader("own"), place: iter([*loader("own")])}
        with pytest.raises(
            ValueError, match=f"{place}=list_iterator is an iterator, which has no second epoch"
        ):
            bf.fit(model("mc_vi"), **loaders, epochs=2)
    once = bf.fit(model("mc_vi"), iter([*loader("own")]), epochs=1, progress=False)
    assert len(once) == 1


def test_an_empty_loader() -> None:
    with pytest.raises(ValueError, match="train_loader is empty"):
        bf.fit(model("mc_vi"), [], epochs=1)  # type: ignore[arg-type]


def test_half_precision_is_refused_with_a_remedy() -> None:
    with pytest.raises(ValueError, match="use 'bf16-mixed' instead"):
        quick(precision="16-mixed")
