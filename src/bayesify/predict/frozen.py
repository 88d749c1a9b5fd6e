"""A predictor for serving: draws that were made once, and nothing that waits, swaps in the model or reads values."""

import copy
import statistics as stats
import time
from collections import deque
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from bayesify.batches import beside, device_of
from bayesify.execution import capturing, compiling
from bayesify.likelihoods import Likelihood
from bayesify.predict.accumulation import Accumulator, statistics
from bayesify.predict.calibration import calibrated
from bayesify.predict.conformal import ConformalRule
from bayesify.predict.fixed_draws import FixedDraws
from bayesify.predict.fixed_linear import FixedLinear
from bayesify.predict.fixed_moments import FixedMoments
from bayesify.predict.prediction import is_loader, over_batches
from bayesify.predict.predictive import Predictive
from bayesify.torch_internals import pytree
from bayesify.weights import Call, as_call

REPEATS = 5  # timed calls of `cost`
UNSEEN = (
    "this frozen predictor has fixed masks or noise of the shapes that its network makes, and has not seen an input "
    "yet: call it once, or frozen.prepare(x), before it is compiled or recorded"
)


class FrozenClasses(NamedTuple):
    """What a frozen classifier says of each example; entropies in nats, as `Predictive` defines them."""

    probs: Tensor
    entropy: Tensor
    mutual_information: Tensor


class FrozenNumbers(NamedTuple):
    """What a frozen regression says of each example: `variance` is total, `epistemic` the draws' part of it."""

    mean: Tensor
    variance: Tensor
    epistemic: Tensor


class Cost(NamedTuple):
    """Of one call: how often the network runs, draws at once in each pass, bytes of stored tensors, milliseconds."""

    num_passes: int
    num_draws: int
    num_bytes: int
    milliseconds: float

    def __str__(self) -> str:
        return (
            f"{self.num_draws} draws in {self.num_passes} passes of the network, {self.num_bytes / 2**20:.1f} MiB "
            f"stored, {self.milliseconds:.2f} ms a call"
        )


class Frozen(nn.Module):
    """A model with fixed draws: the same input gives the same numbers, bit for bit.

    It is a plain module in eval mode, apart from the model it came from: what is trained afterwards does not reach it.
    Threads may call it at the same time. It compiles in one graph where the network does, and reads no values, so that
    a CUDA graph can record it, once a first call has shown it the shapes. Views of the input are fixed, too.

    batched: run the draws at once (True), one after the other (False), or choose by their size (None)
    """

    #: fitted by `bf.conformal` to these draws; that of the model was for others
    conformal: ConformalRule | None = None

    def __init__(
        self,
        core: FixedDraws | FixedLinear | FixedMoments,
        likelihood: Likelihood,
        calibration: float | None = None,
        method: str = "",
    ) -> None:
        super().__init__()
        self.core, self.likelihood, self.calibration, self.method = core, likelihood, calibration, method
        self.batched: bool | None = None
        self.idle: deque[Any] = deque()  # twins of the core, which itself no eager call runs: it is copied
        self.eval()

    def forward(self, x: Any = None, **kwargs: Any) -> FrozenClasses | FrozenNumbers:
        """What is predicted for a batch, as the network takes it: `FrozenClasses` or `FrozenNumbers`.

        Inputs are not looked at: NaN gives NaN.
        """
        call = as_call(x, kwargs)
        if compiling() or capturing():
            if not self.core.ready:
                raise RuntimeError(UNSEEN)
            return self.summarized(self.core.outputs(call, self.batched))
        return self.summarized(self._outputs(call))

    def predict(self, x: Any, keep_samples: bool = False, on_nonfinite: str = "raise") -> Predictive:
        """The same as a `Predictive`, of one input or a loader; options as of `model.predict`."""
        keep_samples |= self.conformal is not None and self.conformal.keeps_samples

        def one(inputs: Any) -> Predictive:
            accumulator = Accumulator(self.likelihood, keep_samples, self.core.matched)
            accumulator.add(self._outputs(as_call(inputs)))
            return accumulator.result()

        here = None if is_loader(x) else device_of(x)
        found = over_batches(self, x if here is None else beside(self, x), one, on_nonfinite)
        found = found if self.calibration is None else calibrated(found, self.calibration)
        found = replace(found, conformal=self.conformal)
        return found if here is None else found.to(here)

    def summarized(self, outputs: Any) -> FrozenClasses | FrozenNumbers:
        """What the outputs of all draws, (draws, batch, ...), say together."""
        accumulator = Accumulator(self.likelihood, False, self.core.matched)
        accumulator.merge(statistics(self.likelihood, outputs)._replace(votes=None, outputs=None))
        found = accumulator.result()
        found = found if self.calibration is None else calibrated(found, self.calibration)
        if self.likelihood.task == "classification":
            return FrozenClasses(found.probs, found.entropy, found.mutual_information)
        return FrozenNumbers(found.mean, found.variance, found.epistemic)

    def prepare(self, x: Any) -> None:
        """Let it see the shapes of an input, which the first call does otherwise."""
        self.prepare_for(as_call(x))

    def cost(self, x: Any) -> Cost:
        """Of a call with `x`: passes of the network, bytes stored, and measured milliseconds (median of a few)."""
        x = beside(self, x)
        times = []
        for _ in range(2 + REPEATS):
            start = time.perf_counter()
            self(x)
            if next(self.parameters()).is_cuda:
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        passes = self.core.passes(as_call(x), self.batched)
        return Cost(passes, self.num_draws, self.num_bytes, 1e3 * stats.median(times[2:]))

    @property
    def num_draws(self) -> int:
        """Draws that a prediction averages over."""
        return self.core.num_draws

    @property
    def num_bytes(self) -> int:
        """Of all stored tensors."""
        return sum(t.nbytes for t in {**dict(self.named_parameters()), **dict(self.named_buffers())}.values())

    def train(self, mode: bool = True) -> "Frozen":
        """It stays in eval mode."""
        return super().train(False)

    @torch.no_grad()
    def prepare_for(self, call: Call) -> None:
        """As `prepare`, of a call. Threads that come first at once each make the same, from its seed."""
        if not self.core.ready:
            core = _twin(self.core)
            core.prepare(call)
            self.core, self.idle = core, deque()

    @torch.no_grad()
    def _outputs(self, call: Call) -> Any:
        """By a core that no other thread uses: their passes put draws into a network. Twins share all tensors."""
        with torch.inference_mode(False):  # whose tensors cannot tell that they were written into
            call = pytree.tree_map(_own, call)
            self.prepare_for(call)
            idle = self.idle
            try:
                core = idle.pop()
            except IndexError:
                core = _twin(self.core)
            try:
                return core.outputs(call, self.batched)
            finally:
                self.core.vmap_refusal = core.vmap_refusal
                idle.append(core)

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        found = super()._apply(fn, recurse)
        self.idle = deque()  # twins hold the old tensors
        return found


def _own(value: Any) -> Any:
    """A tensor that was made in inference mode as one that was not."""
    return value.clone() if isinstance(value, Tensor) and value.is_inference() else value


def _twin(core: FixedDraws | FixedLinear | FixedMoments) -> Any:
    """A core of its own modules and the same tensors."""
    return copy.deepcopy(core, {id(t): t for t in (*core.parameters(), *core.buffers())})
