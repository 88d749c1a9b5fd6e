"""Watch one call of a network: which layers see its inputs, and from which its prediction comes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from bayesify.torch_internals import pytree
from bayesify.weights.observing.outside_references import flat
from bayesify.weights.observing.watch import Watch, layer_of


class Origins(Watch):
    """Follows the tensors of a call, beside the uses of parameters.

    layers:  activation -> the layers it comes from with no other layer in between (none for the inputs)
    made:    tensor computed from parameters alone, such as a normalised weight -> their layer
    stems:   layers that saw the inputs with no other layer in between
    """

    def __init__(self, tracked: Mapping[str, Tensor], inputs: Any) -> None:
        super().__init__(tracked)
        self.layers, self.made = WeakTensorKeyDictionary(), WeakTensorKeyDictionary()
        self.stems: set[str] = set()
        for value in pytree.tree_leaves(inputs):
            if isinstance(value, Tensor):
                self.layers[value] = frozenset()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = super().__torch_function__(func, types, args, kwargs)
        values = [v for v in flat((*args, *(kwargs or {}).values())) if isinstance(v, Tensor)]
        before = [self.layers[v] for v in values if v in self.layers]
        used = [layer for v in values if (layer := self._layer_of(v)) is not None]
        own = used[-1:]
        if before and not any(before):
            self.stems.update(used[:1])
        written = args[0] if func is Tensor.__setitem__ else result
        for value in flat((written,)):
            if isinstance(value, Tensor) and before:
                self.layers[value] = frozenset(own) or frozenset().union(*before)
            elif isinstance(value, Tensor) and own:
                self.made[value] = own[0]
        return result

    def behind(self, output: Any, pick: Callable[[Any], Any] | None = None) -> set[str]:
        """The layers behind the prediction in `output`; what cannot be followed (an operation that torch does not
        announce, a class of one's own) counts as coming from the layer used last."""
        tensors = [t for t in pytree.tree_leaves((pick or _prediction)(output)) if isinstance(t, Tensor)]
        found = {layer for t in tensors for layer in self.layers.get(t, ())}
        followed = found and all(t in self.layers for t in tensors)
        return found if followed else found | {layer_of(self.uses[-1])}

    def _layer_of(self, value: Tensor) -> str | None:
        name = self.names.get(id(value))
        return self.made.get(value) if name is None else layer_of(name)


def _prediction(output: Any) -> Any:
    """The logits where there are any, else all of it."""
    logits = output.get("logits") if isinstance(output, dict) else getattr(output, "logits", None)
    return output if logits is None else logits


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Modes come back afterwards."""
    modes = {module: module.training for module in net.modules()}
    net.eval()
    try:
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def execution_order(
    net: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any], pick: Callable[[Any], Any] | None = None
) -> tuple[set[str], set[str]]:
    """(layers that see the inputs, layers behind the prediction) in one eval-mode call of `net`; modes come back
    afterwards. Where no input can be followed to a layer, the one used first counts."""
    watch = Origins(dict(net.named_parameters()), (args, dict(kwargs)))
    with eval_mode(net), torch.no_grad(), watch:
        output = net(*args, **kwargs)
    if not watch.uses:
        raise ValueError("example: running the network on it used none of the network's parameters")
    return watch.stems or {layer_of(watch.uses[0])}, watch.behind(output, pick)
