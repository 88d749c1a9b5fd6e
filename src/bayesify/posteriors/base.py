"""The face of every posterior over the weights of a network."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from bayesify.weights import Call
from bayesify.weights.calls import Slots

#: what a network of these weights predicts
Says = Callable[[dict[str, Tensor]], Tensor]
#: draws of every random weight by name, (n, *shape), in parts, with the number n of each
Chunks = Iterator[tuple[int, dict[str, Tensor]]]


class Idle(NamedTuple):
    """A tensor of the state with a mask: entries that change nothing if they become `value`."""

    tensor: Tensor
    mask: Tensor
    value: float = 0.0


class LinearLaw(NamedTuple):
    """What predictions of a linearised network need: f(w̄) + J (w − w̄), w ~ N(w̄, Σ).

    weights:     w̄ by name
    of_outputs:  J by name, (batch, outputs, *shape) -> J Σ Jᵀ, (batch, outputs, outputs)
    factored:    J may be `Factored`, too
    deviations:  (n, generator) -> n draws of w − w̄, by name
    """

    slots: Slots
    weights: dict[str, Tensor]
    of_outputs: Callable[[Mapping[str, Tensor]], Tensor]
    deviations: Callable[[int, Generator | None], dict[str, Tensor]]
    factored: bool = False


class TrainingData(NamedTuple):
    """What a posterior may ask for once training is over.

    batches:     each call goes through the training data once, as (input, target) on the device
    num_data:    training examples; None: as many as a pass gives
    likelihood:  of the targets
    pick:        the prediction in what the network returns
    confidence:  the mean confidence of the model's predictions on some training examples
    score:       the mean NLL of the model on the validation data; None without any
    num_members: of the model, each of which is asked for itself
    """

    batches: Callable[[], Iterable[tuple[Any, Tensor]]]
    num_data: int | None
    likelihood: Any
    pick: Callable[[Any], Any]
    confidence: Callable[[], float] | None = None
    score: Callable[[], float] | None = None
    num_members: int = 1


class Posterior(nn.Module, ABC):
    """Random weights of one network, or of several members.

    Members, in this order: `nets`, `run`, `num_passes`, `draw`, `stream`, `run_draw`, `by_output`, `mean`, `kl`,
    `undecayed`, `seldom`, `member`, `fold`, `linear_law`, `install`, `begin`, `collect`, `averages`, `settling`,
    `finish`, `conclude`, `shift`, `check_finite`, `diverged`, `caution`, `extra_tensors`, `references`,
    `idle_entries`, `make_room`, `take_over`, `plain_data`, `take_plain_data`, `describe`, `notes`.
    """

    #: every pass of one member gives the same output
    deterministic: bool = False
    #: every draw lies around the network's own weights, so that changing those changes all draws
    is_around_net: bool = True
    #: the pass that evaluates the network: draw, local, flipout or moments
    sampling: str = "draw"
    #: why draws of this network cannot be batched by vmap; "" until one was refused
    vmap_refusal: str = ""
    #: a prediction needs draws of all weights: the network refused others (`by_output`)
    whole_draws: bool = False
    #: draws are read or chosen and not made, so that compiled code takes them as its input
    stored: bool = False
    #: predictions average over passes like those of training, not over draws of the weights
    predicts_by_pass: bool = False
    #: `kl` is a penalty on the mean loss, which is not divided by the number of data
    penalty: bool = False
    #: `conclude` looks at the training data; with `needs_validation` at the validation data, too
    concludes: bool = False
    needs_validation: bool = False
    #: `conclude` finds the noise of a normal likelihood that nobody chose
    finds_noise: bool = False
    #: predictions are those of the linearised network, where no mode says otherwise
    linearised: bool = False

    def nets(self, net: nn.Module) -> list[nn.Module]:
        """The networks this posterior speaks of: `net` itself, then further members."""
        return [net]

    @abstractmethod
    def run(self, net: nn.Module, call: Call, member: int = 0, kl_terms: list[Tensor] | None = None) -> Any:
        """One pass of one member; with `kl_terms` also collects that member's KL."""

    def num_passes(self, num_draws: int) -> int:
        """Passes of one member in a prediction that asks for so many draws of it: one where nothing is random."""
        return 1 if self.deterministic else num_draws

    @abstractmethod
    def draw(self, member: int, n: int, generator: Generator | None = None) -> dict[str, Tensor]:
        """`n` draws of every random weight of one member, by name: (n, *shape)."""

    def stream(self, member: int, num_draws: int, chunk: int, generator: Generator | None = None) -> Chunks:
        """About `num_draws` draws of one member for a prediction, at most `chunk` at a time, with their number."""
        for start in range(0, num_draws, chunk):
            n = min(chunk, num_draws - start)
            yield n, self.draw(member, n, generator)

    @abstractmethod
    def run_draw(self, net: nn.Module, call: Call, weights: Mapping[str, Tensor], member: int = 0) -> Any:
        """One pass with these weights in place."""

    def by_output(self, call: Call, member: int = 0) -> frozenset[str]:
        """Weights that `draw` may leave out where a prediction of this call wants new draws: without them `run_draw`
        samples the outputs of their layers, by the same law."""
        return frozenset()

    @abstractmethod
    def mean(self, net: nn.Module) -> dict[str, Tensor]:
        """The posterior mean of every random weight, by name."""

    @abstractmethod
    def kl(self, net: nn.Module) -> Tensor:
        """KL to the prior, summed over all random weights (mean over members): a scalar."""

    def undecayed(self, net: nn.Module) -> Iterator[Tensor]:
        """Parameters that weight decay leaves alone: those with a prior in `kl`, and those that are no weights."""
        return iter(())

    def seldom(self, net: nn.Module) -> dict[Tensor, float]:
        """Parameters that a step may leave without a gradient, with the share of steps in which they have one."""
        return {}

    def member(self, net: nn.Module, index: Any = 0) -> tuple[int, dict[str, Tensor]]:
        """One member of an ensemble: the number of its network among `nets`, and the weights to put into it."""
        raise TypeError(
            "member() takes one network out of an ensemble; this model is none: use draw() or mean_net()"
        )

    def fold(self, net: nn.Module) -> dict[str, Tensor]:
        """The average of the components, by name."""
        raise TypeError("fold() averages the components of an ensemble-patched model; use mean_net()")

    def linear_law(self, net: nn.Module, member: int = 0) -> LinearLaw:
        """The normal law of the weights of one member."""
        raise TypeError(
            f"mode='linearised' needs a normal law of the weights, and this posterior ({type(self).__name__}) "
            f"is none: use mode='ensemble'"
        )

    def install(self, net: nn.Module, weights: Mapping[str, Tensor]) -> nn.Module:
        """Make `net`, a copy of a member's network, the plain network with these weights."""
        places = {**dict(net.named_parameters()), **dict(net.named_buffers())}
        for name, value in weights.items():
            places[name].copy_(value)
        return net

    def begin(
        self,
        optimizer: Any = None,
        num_steps: int | None = None,
        folder: Path | None = None,
        trained: bool = False,
    ) -> None:
        """A run begins: of so many steps, by this optimiser, with a folder for what the posterior writes itself."""

    def collect(self) -> None:
        """Keep the present weights as a draw."""
        raise TypeError(
            "collect() keeps a draw of a chain, or an iterate; this model does neither: use bf.ThermostatMCMC(), or "
            "bf.SWAG()"
        )

    def averages(self) -> bool:
        """Is its mean another network than the one that trains, which batch norm has no statistics of yet?"""
        return False

    def settling(self) -> Iterator[None]:
        """One draw after the other in the place of the mean, in passes of training without gradients, for batch norm
        to learn its statistics; of posteriors whose predictions take them."""
        return iter(())

    def finish(self, net: nn.Module) -> None:
        """A run has ended: leave the weights of its networks as they shall be."""

    def conclude(self, net: nn.Module, data: TrainingData) -> list[str]:
        """Training is over: find what is found in the trained network, in eval mode, and the data; what to say."""
        return []

    def shift(self, net: nn.Module, name: str, by: Tensor, member: int = 0) -> bool:
        """Move all draws of a parameter of a member's network; False where they do not move along with it."""
        dict(net.named_parameters())[name].add_(by)
        return True

    def check_finite(self) -> None:
        """Raise NonFiniteError where what an optimiser's step left behind is not finite. Reads values."""

    def diverged(self, trouble: str, ago: int = 0) -> str | None:
        """What to say of a loss or a gradient that is not finite, `ago` steps before the present one: where the
        run is and what helps. None where the posterior has nothing to add."""
        return None

    def caution(self, says: Says | None = None) -> str | Warning | None:
        """Why a prediction would not be one of the posterior, and what to do; None where it is one. What a check of
        the sampler found is a `SamplingWarning`.

        says: what these weights predict where a prediction is asked for
        """
        return None

    def asides(self) -> list[str]:
        """What a check of the sampler found that changes predictions too little for a warning."""
        return []

    def extra_tensors(self, run: Path | None = None) -> dict[str, Tensor]:
        """What a file holds beyond the state dict, by the keys of this module; a file in the folder `run` without what
        it only refers to."""
        return {}

    def references(self, run: Path | None) -> dict[str, Any]:
        """What a file in the folder `run` refers to instead, by key: where in that folder it lies."""
        return {}

    def idle_entries(self) -> list[Idle]:
        """What files leave out of the state, the network's weights among it, beside exact zeros."""
        return []

    def make_room(self, tensors: Mapping[str, Any]) -> None:
        """Prepare for a stored state whose shapes depend on what happened (the number of draws), and learn where
        that is which stays in files."""

    def take_over(self, other: "Posterior") -> None:
        """Become what `other`, of the same kind and network, is; that is not used any more."""
        self.load_state_dict(other.state_dict())

    def plain_data(self) -> Any:
        """What a self-contained file holds beside tensors, as JSON does; None for nothing."""
        return None

    def take_plain_data(self, data: Any) -> None:
        """Take back what `plain_data` gave."""

    @abstractmethod
    def describe(self, name: str) -> str:
        """A few words on what the weight `name` became."""

    def notes(self) -> list[str]:
        """What a user should know about this conversion."""
        return []


def check_index(index: Any, num_members: int) -> None:
    """`index` must be the number of a member."""
    if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < num_members:
        raise ValueError(f"member: index {index!r} must be a whole number in 0..{num_members - 1}")


def pick_member(posterior: Posterior, net: nn.Module, generator: Generator | None) -> int:
    """A member at random; no random number is spent where there is only one."""
    count = len(posterior.nets(net))
    if count == 1:
        return 0
    return int(torch.randint(count, (), generator=generator, device=generator.device if generator else None))
