"""Is a checkpoint of the network that is to go on from it?"""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor, nn

NAMED = 3  # differences of a kind that are written out


def check_same_network(model: nn.Module, stored: Mapping[str, Tensor], folder: Path) -> None:
    """Raise where parameters or buffers are missing, unexpected or of another shape, with the first few of them."""
    state = model.state_dict()
    mine = {name: t for name, t in [*model.named_parameters(), *model.named_buffers()] if name in state}
    lacking = [name for name in mine if name not in stored]
    further = [name for name in stored if name not in state]
    shapes = [
        f"{name} is {tuple(stored[name].shape)} there and {tuple(t.shape)} here"
        for name, t in mine.items()
        if name in stored and stored[name].shape != t.shape
    ]
    kinds = [("it lacks ", lacking), ("it has also ", further), ("", shapes)]
    found = "; ".join(words + _first_few(names) for words, names in kinds if names)
    if found:
        raise ValueError(
            f"the run in {folder} is of another network or method: {found}. Resume it with the same, or choose "
            f"another folder"
        )


def _first_few(names: list[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
