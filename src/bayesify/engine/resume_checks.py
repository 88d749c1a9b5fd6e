"""Is a run resumed with what it had? Another network or other data are refused, other settings are said."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from bayesify.files.differences import changes, differences, first_few, shapes_of
from bayesify.files.storage import settings_of
from bayesify.model import BayesianModule

NO_FINGERPRINT = (
    "the stored run has no fingerprint of its data (an older bayesify wrote it): whether they are the same as before "
    "is not known"
)

STREAM = (
    "the data are a stream, which has no fingerprint: that they are those of the stored run is not checked, others "
    "would not be noticed"
)


def check_same_network(model: nn.Module, stored: Mapping[str, Tensor], folder: Path) -> None:
    """Raise where parameters or buffers are missing, unexpected or of another shape, with the first few of them."""
    state = model.state_dict()
    mine = {name: t for name, t in [*model.named_parameters(), *model.named_buffers()] if name in state}
    # not the draws of a chain
    theirs = {name: t for name, t in stored.items() if name in mine or name not in state}
    found = differences(
        shapes_of(mine),
        shapes_of(theirs),
        only_mine="it lacks ",
        only_stored="it has also ",
        shapes="{name} is {stored} there and {mine} here",
        num_named=3,
    )
    if found:
        raise ValueError(
            f"the run in {folder} is of another network or method: {found}. Resume it with the same, or choose "
            f"another folder"
        )


def check_same_optimizer(
    optimizer: Optimizer, kind: str | None, stored: Mapping[str, Any], folder: Path
) -> None:
    """Raise where the optimiser is of another kind than that of the run (None: an older bayesify wrote it), or has
    other groups of parameters."""
    mine, sizes = type(optimizer).__name__, [len(group["params"]) for group in optimizer.param_groups]
    there = [len(group["params"]) for group in stored["param_groups"]]
    if kind in (None, mine) and sizes == there:
        return
    groups = f"{sizes} parameters in its groups, the run's has {there}"
    raise ValueError(
        f"the run in {folder} was trained by another optimiser than this {mine} "
        f"({groups if kind in (None, mine) else f'by {kind}'}): resume it with the same optimizer=, weight_decay= and "
        f"recipe= (None for runs of bayesify 0.1), or choose another folder"
    )


def check_same_data(
    stored: Mapping[str, Any] | None, mine: Mapping[str, Any], folder: Path, allowed: bool
) -> list[str]:
    """How the data differ from those of a run, where that is `allowed`; raise where it is not."""
    other = [_words(text) for text in changes(stored or {}, mine)]
    if other and not allowed:
        raise ValueError(
            f"the data are others than those of the run in {folder}: {first_few(other, 8)}. Give it the data it "
            f"began with, go on with these on purpose by data_changed=True (--data-changed), or choose another folder"
        )
    return other


def _words(change: str) -> str:
    """Hashes tell a reader nothing."""
    from bayesify.data.fingerprint import HASH

    name, _, values = change.partition(": ")
    return f"{name}: other values" if HASH in values else change


def other_settings(stored: Mapping[str, Any], model: BayesianModule, folder: Path) -> str | None:
    """What to say where the method or the likelihood has other settings than it had in the run."""
    found = [text.replace("options.", "") for text in changes(stored, settings_of(model))]
    if not found:
        return None
    return (
        f"settings are others than those of the run in {folder}: {first_few(found, 8)}. What the checkpoint holds "
        f"stays (kl_weight, the settings of the optimiser), the rest is as given now"
    )
