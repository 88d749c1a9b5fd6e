"""Where priors lie that are others for every weight, and how wide they are."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bayesify.priors import Prior
from bayesify.weights.calls import Slots
from bayesify.weights.dotted_names import put


class PriorMeans(nn.Module):
    """The centres and widths of priors that are another for every entry (`mean="net"`, tensors); part of files."""

    def __init__(self, priors: Mapping[str, Prior], slots: Slots) -> None:
        super().__init__()
        self.root, self.widths = nn.Module(), nn.Module()
        weights = {name: slots[name][0].get() for name in priors}
        centres = {name: prior.centre(name, weights[name]) for name, prior in priors.items()}
        widths = {name: prior.width(name, weights[name]) for name, prior in priors.items()}
        self.places = {name: put(self.root, name, t) for name, t in centres.items() if t is not None}
        self.width_of = {name: put(self.widths, name, t) for name, t in widths.items() if t is not None}

    def __bool__(self) -> bool:
        """Is there any?"""
        return bool(self.places or self.width_of)

    def of(self, name: str, weight: Tensor) -> Tensor | None:
        """The centre of `weight`; None where its prior says where it lies."""
        if name not in self.places:
            return None
        if hasattr(weight, "full_tensor"):
            raise ValueError(
                f"prior mean='net', or a tensor, of {name!r}: the network is sharded (FSDP2), its first weights are "
                f"not. Train it with strategy='ddp', or give the prior numbers"
            )
        return self.places[name].get()

    def width(self, name: str) -> Tensor | None:
        """How wide the prior of a weight is, at every entry."""
        return self.width_of[name].get() if name in self.width_of else None

    def differences(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """What the priors are densities of: w, or (w − centre) / width."""
        if not self:
            return weights
        return {name: self._standard(name, weight) for name, weight in weights.items()}

    def difference(self, name: str, weight: Tensor) -> Tensor:
        """w − centre of one weight."""
        mean = self.of(name, weight)
        return weight if mean is None else weight - mean

    def log_widths(self) -> Tensor | float:
        """Σ log width over all entries: what the density of w lacks beside that of (w − centre) / width."""
        found = [slot.get().log().sum() for slot in self.width_of.values()]
        return torch.stack(found).sum() if found else 0.0

    def _standard(self, name: str, weight: Tensor) -> Tensor:
        width = self.width(name)
        centred = self.difference(name, weight)
        return centred if width is None else centred / width
