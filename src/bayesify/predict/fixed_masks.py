"""A network whose own dropout layers have masks that were made once."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from bayesify.posteriors.dropout import SEED, FixedMask, StoredMask, dropout_layers
from bayesify.predict.fixed_draws import FixedDraws
from bayesify.weights import Call


class FixedMasks(FixedDraws):
    """n passes, each with one mask for every dropout layer, the same for all examples.

    Masks have the shapes that the layers see, which the first call shows; they are made from the seeds of the draws.
    """

    def __init__(
        self, net: nn.Module, draws: Mapping[str, list[Tensor]], num_draws: int, pick: Callable[[Any], Any]
    ) -> None:
        self.others = {name: values for name, values in draws.items() if name != SEED}
        super().__init__(net, {}, num_draws, pick)
        self.seeds = [int(seed) for seed in draws[SEED]]
        self.ready = False

    def prepare(self, call: Call) -> None:
        """Make the masks, for layers of the shapes that they see in this call."""
        shapes = _shapes(self.net, call)
        draws = dict(self.others)
        parameter = next(self.net.parameters())
        for path, shape in shapes.items():
            layer = self.net.get_submodule(path)
            pairs = [FixedMask(layer, seed, path).mask((1, *shape)) for seed in self.seeds]
            scales, shifts = ([each.to(parameter) for each in column] for column in zip(*pairs, strict=True))
            draws[f"{path}.scale"] = scales
            if any(shift.any() for shift in shifts):
                draws[f"{path}.shift"] = shifts
            parent, _, last = path.rpartition(".")
            self.net.get_submodule(parent).add_module(last, StoredMask())
        self.hold(draws)
        self.others, self.ready = {}, True


def _shapes(net: nn.Module, call: Call) -> dict[str, tuple[int, ...]]:
    """What each dropout layer sees of an example."""
    shapes: dict[str, tuple[int, ...]] = {}

    def note(path: str, x: Tensor) -> None:
        shape = tuple(x.shape[1:])
        if shapes.setdefault(path, shape) != shape:
            raise ValueError(
                f"the dropout layer {path!r} is used for shapes {shapes[path]} and {shape} of an example: one mask "
                f"cannot serve both. Give the network a dropout layer for each use, or use model.predict"
            )

    hooks = [
        net.get_submodule(path).register_forward_pre_hook(lambda _, args, path=path: note(path, args[0]))
        for path in dropout_layers(net)
    ]
    try:
        net(*call.args, **call.kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return shapes
