"""Is a checkpoint of the network that is to go on from it?"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

from bayesify.files.differences import differences


def check_same_network(model: nn.Module, stored: Mapping[str, Tensor], folder: Path) -> None:
    """Raise where parameters or buffers are missing, unexpected or of another shape, with the first few of them."""
    state = model.state_dict()
    mine = {name: t for name, t in [*model.named_parameters(), *model.named_buffers()] if name in state}
    # not the draws of a chain
    theirs = {name: t for name, t in stored.items() if name in mine or name not in state}
    found = differences(
        mine,
        theirs,
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
