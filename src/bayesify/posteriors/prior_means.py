"""Where priors around a network's own weights lie."""

from collections.abc import Mapping

from torch import Tensor, nn

from bayesify.priors import Prior
from bayesify.weights.calls import Slots
from bayesify.weights.dotted_names import put


class PriorMeans(nn.Module):
    """The weights that a network began with, of tensors whose prior is around them (`mean="net"`); part of files."""

    def __init__(self, priors: Mapping[str, Prior], slots: Slots) -> None:
        super().__init__()
        self.root = nn.Module()
        self.places = {
            name: put(self.root, name, slots[name][0].get().detach().clone())
            for name, prior in priors.items()
            if prior.relative
        }

    def of(self, name: str, weight: Tensor) -> Tensor | None:
        """That of `weight`; None where its prior says where it lies."""
        if name not in self.places:
            return None
        if hasattr(weight, "full_tensor"):
            raise ValueError(
                f"prior mean='net' of {name!r}: the network is sharded (FSDP2), its first weights are not. "
                f"Train it with strategy='ddp', or give the prior a mean"
            )
        return self.places[name].get()

    def differences(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the priors are densities of: w, or w − w₀ of those around w₀."""
        if not self.places:
            return weights
        return {name: self.difference(name, weight) for name, weight in weights.items()}

    def difference(self, name: str, weight: Tensor) -> Tensor:
        """Of one weight."""
        mean = self.of(name, weight)
        return weight if mean is None else weight - mean
