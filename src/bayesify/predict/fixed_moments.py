"""A network that propagates moments, with noise for draws of its outputs that was made once: what a frozen predictor
of it runs."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.moments import certain, replace
from bayesify.moments.sweep import finished
from bayesify.posteriors import Posterior
from bayesify.predict.output_draws import fixed_noise, with_noise
from bayesify.torch_internals import pytree
from bayesify.weights import Call


class FixedMoments(nn.Module):
    """One pass with moments of every member; its outputs are drawn by noise that is the same for every example.

    Mean and variance of the drawn outputs are those of the pass, exactly. The noise is made at the first call, which
    shows the shape of an output, from a seed.
    """

    matched = True
    vmap_refusal = ""  # one pass needs no vmap

    def __init__(
        self, net: nn.Module, posterior: Posterior, num_draws: int, pick: Callable[[Any], Any], seed: int
    ) -> None:
        super().__init__()
        self.net, self.posterior, self.pick, self.seed = net, posterior, pick, seed
        self.members = len(posterior.nets(net))
        self.each = num_draws
        self.heads = 0

    @property
    def ready(self) -> bool:
        """Has it seen the shape of an output?"""
        return self.heads > 0

    @property
    def num_draws(self) -> int:
        """Of all members."""
        return self.members * self.each

    def prepare(self, call: Call) -> None:
        """Make the noise, for outputs of the shape that this call gives."""
        made = _heads(fixed_noise(self.moments(call, 0), self.each, Generator().manual_seed(self.seed)))
        for i, noise in enumerate(made):
            self.register_buffer(f"noise{i}", noise)
        self.heads = len(made)

    def passes(self, call: Call, batched: bool | None) -> int:
        """How often the network runs for one prediction."""
        return self.members

    def moments(self, call: Call, member: int) -> Any:
        """Of the outputs of one member."""
        found = finished(self.posterior.run(self.net, call, member))
        return pytree.tree_map(Tensor.detach, replace(self.pick(found), Tensor, certain))

    def outputs(self, call: Call, batched: bool | None) -> Any:
        """(draws, batch, ...): what each draw predicts."""
        return self.drawn([self.moments(call, member) for member in range(self.members)])

    def drawn(self, moments: list[Any]) -> Any:
        """Draws of the outputs of all members."""
        noise = [self._noise(i) for i in range(self.heads)]
        for i, head in enumerate(_heads(moments[0])):
            if head.mean.shape[1:] != noise[i].shape[2:]:
                raise ValueError(
                    f"an output has shape {tuple(head.mean.shape[1:])} for each example, in the first call it was "
                    f"{tuple(noise[i].shape[2:])}: the noise of this frozen predictor fits that one; use another "
                    f"model.freeze() for the other"
                )
        given = tuple(noise) if type(moments[0]) in (tuple, list) else noise[0]
        parts = [with_noise(each, given) for each in moments]
        return parts[0] if len(parts) == 1 else pytree.tree_map(lambda *each: torch.cat(each), *parts)

    def _noise(self, i: int) -> Tensor:
        found = self._buffers[f"noise{i}"]
        assert found is not None
        return found


def _heads(output: Any) -> list[Any]:
    return [*output] if type(output) in (tuple, list) else [output]
