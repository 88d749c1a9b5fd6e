"""A network with random weights: what `bayesify` returns."""

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Generator, Tensor, nn

from bayesify.batches import PerMember, beside, device_of, first_examples
from bayesify.checks import Count, Positive, as_tensor, check_setting, check_whole, checked
from bayesify.execution import compiling
from bayesify.likelihoods import Likelihood
from bayesify.methods import Method
from bayesify.model.gains import fit_gains
from bayesify.model.lock import Lock
from bayesify.model.summary import Summary
from bayesify.moments import Moments, holds
from bayesify.moments.sweep import finished
from bayesify.names import check_choice
from bayesify.objectives import Loss, negative_elbo
from bayesify.posteriors import Posterior, pick_member, without_guards
from bayesify.posteriors.base import Says
from bayesify.predict.at_means import AtMeans
from bayesify.predict.calibration import calibrated, quantity
from bayesify.predict.conformal import ConformalRule
from bayesify.predict.freeze import freeze
from bayesify.predict.frozen import Frozen
from bayesify.predict.linearised import predict_linearised
from bayesify.predict.pick import picked
from bayesify.predict.prediction import (
    LINEARISED,
    MODES_OF_PREDICT,
    evaluating,
    is_loader,
    predict,
    shares,
)
from bayesify.predict.predictive import Predictive
from bayesify.predict.views import AUTO, Augment
from bayesify.samplers import SamplingWarning
from bayesify.torch_internals import versions_of
from bayesify.weights import Selection, as_call
from bayesify.weights.calls import is_sharded, is_sharded_unit
from bayesify.weights.copies import copy_of
from bayesify.weights.units import described, folded

SCRATCH, PRETRAINED = "scratch", "pretrained"
#: what a network knows when it becomes Bayesian
STARTS = {SCRATCH: "nothing", PRETRAINED: "it was trained, on this task or on another one"}
MOVED = (
    "the weights were changed after bf.calibrate or bf.conformal fitted what predictions use, which belongs to the "
    "old ones: call it again, or with None in place of the loader"
)
LOOKED_AT = 64  # examples at which draws of a chain are compared
MODELS: "weakref.WeakSet[BayesianModule]" = weakref.WeakSet()  # those alive: a network can be in one only


class BayesianModule(nn.Module):
    """A network with random weights. Its own parameters are the centres, at `model.net`."""

    kl_weight: Tensor
    #: what predictions lack (`Posterior.caution`) has been said, or is not to be said
    cautioned: bool = False
    #: fitted by `bf.calibrate`, used by `predict`: a temperature (classes) or a scale of variances (regression)
    calibration: float | None = None
    #: fitted by `bf.conformal`, used by `predict`: what makes sets and intervals of its predictions
    conformal: ConformalRule | None = None
    #: states of the parameters that these two belong to
    fitted_at: list[int] | None = None
    #: what the method decided by the network, for `summary()`
    chosen: str = ""
    #: "scratch", or "pretrained": of a network that was trained already
    start: str = SCRATCH
    #: how training saw its images, gently: a `bf.data.CropFlip`, by `bf.fit` from a Loader that crops and flips
    augment: Any = None

    def __init__(
        self,
        net: nn.Module,
        method: Method,
        posterior: Posterior,
        likelihood: Likelihood,
        selection: Selection,
        num_data: int | None = None,
        output: Callable[[Any], Any] | None = None,
    ) -> None:
        super().__init__()
        parameter = next(net.parameters(), torch.zeros(()))
        self.net = net
        self.posterior = posterior.to(parameter.device)
        self.likelihood = likelihood.to(parameter.device)
        assert method.kl_weight is not None
        self.register_buffer("kl_weight", torch.tensor(float(method.kl_weight), device=parameter.device))
        self.method = method
        self.data_term = method.data_term()
        self.selection = selection
        self.num_data = num_data
        self.output = output
        self.lock = Lock()
        self.training = net.training
        MODELS.add(self)

    @property
    def num_data(self) -> int | None:
        """The number of training examples; once it is known, the method decides what depends on it."""
        return self._num_data

    @num_data.setter
    def num_data(self, value: int | None) -> None:
        self._num_data = value
        if value is not None:
            self.method = self.method.for_data(self.selection, self.likelihood, value)

    def forward(
        self,
        x: Any = None,
        target: Any = None,
        *,
        num_draws: int = 1,
        sample_weight: Tensor | None = None,
        generator: Generator | None = None,
        **kwargs: Any,
    ) -> Any:
        """One random pass: what the network returns. With `target`, the loss instead (`bf.Loss`).

        x: a tensor, a tuple (positional arguments) or a dict (keyword arguments); other keyword
        arguments go to the network.
        """
        if getattr(self, "_is_replica", False):
            raise RuntimeError("nn.DataParallel is not supported: use DistributedDataParallel")
        if is_sharded(self.net) and not is_sharded_unit(self):
            raise RuntimeError(
                "the network is sharded (FSDP2) but the model around it is not, so the variational "
                "parameters would differ between ranks: call fully_shard(model) last"
            )
        if isinstance(x, PerMember):  # batches of a loop that trains every member by its own
            calls = PerMember([as_call(own, kwargs, generator, for_loss=True) for own in x.each])
            with self._locked():
                return negative_elbo(self, calls, target, num_draws, sample_weight)
        call = as_call(x, kwargs, generator, for_loss=target is not None)
        with self._locked():
            if target is None:
                member = pick_member(self.posterior, self.net, generator)
                return finished(self.posterior.run(self.net, call, member))
            target = as_tensor(target, "target", next(self.parameters(), None))
            return negative_elbo(self, call, target, num_draws, sample_weight)

    def loss(self, x: Any, y: Tensor, num_draws: int = 1, **kwargs: Any) -> Loss:
        """−ELBO per example and its parts. Through a DDP or FSDP wrapper call `wrapper(x, target=y)`."""
        if y is None:
            raise TypeError("y=None must be the targets of the batch; model(x) is the output without them")
        return self(x, target=y, num_draws=num_draws, **kwargs)

    def kl(self) -> Tensor:
        """KL of the whole posterior to the prior (mean over members of an ensemble)."""
        with self._locked():
            kl = self.posterior.kl(self.net)
        return kl.full_tensor() if hasattr(kl, "full_tensor") else kl

    def predict(self, x: Any, num_draws: int = 20, mode: str = "ensemble", **options: Any) -> Predictive:
        """The predictive distribution at `x`, averaged over draws, always in eval mode.

        x:             one input, on any device, where the prediction comes back to; or a DataLoader (of inputs or
                       (input, target) pairs), whose predictions come back to the CPU
        mode:          "ensemble": the average over `num_draws` draws; "stochastic": one draw; "deterministic": the
                       network at the mean of its weights, copied in every call, so give a loader; "linearised": of
                       a normal posterior, the network linearised at that mean, whose outputs are N(f(x), J Σ Jᵀ)
                       without draws of weights (`bf.Laplace` predicts so by itself). A deep ensemble averages over its
                       members in all of them
        keep_samples:  keep every draw, for `.samples` and `.interval()`. A regression that is not normal keeps the
                       outputs of all draws in any case, num_draws times the memory of one: its density needs them
        generator:     makes the draws reproducible
        on_nonfinite:  where examples have NaN or infinite numbers in the input (arguments behind the first, and those
                       called mask, may hold −∞), or NaN in the output: "raise" names them; "nan" answers NaN and
                       label −1 for them, and leaves the others as they are; "pass" gives the network its input as it
                       is, for networks that take NaN for missing, and raises where the output is NaN
        augment:       a function x -> another view of x, as `bf.data.CropFlip()`: every draw sees a view of its own,
                       made with the generator where the function takes generator=, and a model of one draw sees
                       `num_draws` views. x is what the network gets. "auto": `model.augment`, the crops and flips of
                       training at two thirds of their strength, where draws or members are averaged anyway (not
                       of one pass, which stays one). None: the inputs as they are
        """
        check_whole(num_draws, "num_draws", 1)
        if mode not in MODES_OF_PREDICT:
            check_choice(frozenset(MODES_OF_PREDICT), mode, "mode")
        if x is None or isinstance(x, int | float):
            raise TypeError(
                f"x={x!r} must be a batch of inputs, as the network takes them: a tensor (batch, …)"
            )
        here = None if is_loader(x) else device_of(x)
        x = x if here is None else beside(self, x)
        if options.get("augment", AUTO) == AUTO:
            averaged = mode == "ensemble" and num_draws > 1 and not holds(x, Moments)
            options["augment"] = self.own_views() if averaged else None
        if self.conformal is not None and self.conformal.keeps_samples:
            options["keep_samples"] = True
        with self._locked(), evaluating(self), torch.no_grad():
            if mode == "deterministic":
                found = AtMeans(self).predict(x, num_draws, **options)
            else:
                if not self.cautioned:
                    self._caution(None if here is None else x)
                how = predict_linearised if mode == LINEARISED or self.posterior.linearised else predict
                found = how(self, x, 1 if mode == "stochastic" else num_draws, **options)
        found = found if self.calibration is None else calibrated(found, self.calibration)
        found = found if self.conformal is None else replace(found, conformal=self.conformal)
        return found if here is None else found.to(here)

    @checked
    def draw(self, generator: Generator | None = None) -> nn.Module:
        """One posterior draw as a plain, deterministic network (a detached copy)."""
        with self._copying("draw"):
            member = pick_member(self.posterior, self.net, generator)
            weights = self.posterior.draw(member, 1, generator)
            return self._copy(member, {name: value[0] for name, value in weights.items()})

    def mean_net(self) -> nn.Module:
        """The network at the posterior mean, as a plain copy.

        Its batch norm has the statistics of training, those of draws; `torch.optim.swa_utils.update_bn(loader, net)`
        takes those of the mean.
        """
        with self._copying("mean_net"):
            return self._copy(0, self.posterior.mean(self.net))

    def member(self, index: Any = 0) -> nn.Module:
        """One member of an ensemble as a plain network (a detached copy).

        index: the number of the member; of a patched network also one number per patched layer, or a dict
               layer -> number (layers left out: 0)
        """
        with self._copying("member"):
            return self._copy(*self.posterior.member(self.net, index))

    def fold(self) -> nn.Module:
        """A patched network with the average of its components in their place, as a plain copy."""
        with self._copying("fold"):
            return self._copy(0, self.posterior.fold(self.net))

    def collect(self) -> None:
        """Keep the present weights as a draw of the chain (`bf.ThermostatMCMC`), in a loop of one's own."""
        with self._locked():
            self.posterior.collect()

    @checked
    def freeze(
        self, num_draws: Count = 20, generator: Generator | None = None, augment: Any = AUTO
    ) -> Frozen:
        """A predictor of its own for serving: fixed draws, no lock, the same numbers for the same input.

        num_draws: as for `predict`: shared among the members of an ensemble, and not more than a chain has
        generator: makes the draws reproducible
        augment:   a `bf.data.CropFlip`: every draw sees a crop and flip of its own, the same for all examples and
                   calls. "auto": `model.augment` where draws are averaged, as for `predict`. None: inputs as they are

        >>> frozen = model.freeze(20)
        >>> frozen(x).probs, frozen(x).mutual_information  # of a regression .mean, .variance, .epistemic
        """
        with self._copying("freeze"), evaluating(self):
            self._caution(None)
            if augment == AUTO:
                augment = None if num_draws == 1 else self.own_views()
            return freeze(self, num_draws, generator, augment)

    def fit_gains(
        self, loader: Iterable[Any] | None, num_draws: int, num_examples: int, seed: int
    ) -> dict[str, float] | None:
        """See `bf.moments.fit_gains`."""
        return fit_gains(self, loader, num_draws, num_examples, seed)

    def optimizer(self, lr: float | None = None, **options: Any) -> torch.optim.Optimizer:
        """The method's own optimiser over all parameters; any other torch optimiser works too.

        lr: None: 1e-3, but for some samplers (see `bf.ThermostatMCMC`)
        """
        lr = self.method.default_lr(self) if lr is None else lr
        check_setting("lr", lr, Positive)
        return self.method.optimizer(self, lr=lr, **options)

    def summary(self) -> Summary:
        """What became random, what stayed and why; parameter counts and overhead."""
        became = {w.name: self.posterior.describe(w.name) for w in self.selection.random}
        drawn = not self.posterior.deterministic
        rows = tuple(
            replace(w, random=drawn, reason=became[w.name]) if w.random else w for w in self.selection.weights
        )
        rule, caution = self.selection.order_rule, self.posterior.caution()
        order = [f"where.input and where.output decided {rule}"] if rule else []
        if self.chosen:
            order.append(self.chosen)
        order += described(self.net)
        order += [note for note in self.method.notes() if note.replace(" ", "=", 1) not in self.chosen]
        if self.calibration is not None:
            order.append(f"predictions are calibrated: {quantity(self.likelihood)} {self.calibration:.4g}")
        if self.conformal is not None:
            order.append(f"predictions have {self.conformal}")
        if self.own_views() is not None:
            order.append(
                "predictions: every draw sees a crop and flip of its own (predict(augment=None): none does)"
            )
        if isinstance(caution, SamplingWarning):
            order.append(str(caution))
        return Summary(
            method=self.method.name,
            rows=rows,
            num_parameters=sum(row.numel for row in rows),
            num_random=sum(row.numel for row in rows if row.random),
            num_total=sum(p.numel() for p in self.parameters()),
            notes=(*order, *self.posterior.notes()),
        )

    def pick(self, output: Any) -> Any:
        """The prediction in what the network returned."""
        return picked(output, self.output, self.likelihood.takes_heads)

    def own_views(self) -> Augment | None:
        """What every draw of a prediction sees where nothing was said; None where one pass is all."""
        linear = self.posterior.linearised
        one_pass = linear or self.posterior.sampling == "moments" or max(shares(self, 2)) == 1
        return None if one_pass else self.augment

    def remember(self) -> None:
        """The calibration or conformal rule that the model has now belongs to its present weights."""
        self.fitted_at = versions_of(self.parameters())

    @contextmanager
    def uncautioned(self) -> Iterator[None]:
        """Predictions of a model that is still in training are known not to be those of its end."""
        before, self.cautioned = self.cautioned, True
        try:
            yield
        finally:
            self.cautioned = before

    def _caution(self, x: Any) -> None:
        """Say once what a prediction of this model is not; x: the input, None where it comes in parts."""
        if not self.cautioned and (self.calibration is not None or self.conformal is not None):
            if self.fitted_at is None:  # a model from a file, or a copy
                self.remember()
            elif self.fitted_at != versions_of(self.parameters()):
                self.remember()
                warnings.warn(MOVED, stacklevel=3)
        text = None if self.cautioned else self.posterior.caution(None if x is None else self._saying(x))
        if text is not None:
            self.cautioned = True
            warnings.warn(text, stacklevel=3)

    def _saying(self, x: Any) -> Says:
        """What weights predict for the first examples of x."""
        run, compared = self.posterior.run_draw, self.likelihood.compared

        def says(weights: dict[str, Tensor]) -> Tensor:
            call = as_call(first_examples(x, LOOKED_AT)[0])
            return compared(self.pick(run(self.net, call, weights)))

        return says

    @contextmanager
    def _copying(self, what: str) -> Iterator[None]:
        """A sharded network has no plain copy in one process."""
        with self._locked(), torch.no_grad():
            if is_sharded(self.net):
                raise RuntimeError(
                    f"{what}() needs the whole network in one process, but it is sharded (FSDP2): "
                    f"call bf.save(model, path) on every rank and use bf.load(path, net).{what}()"
                )
            yield

    def _copy(self, member: int, weights: dict[str, Tensor]) -> nn.Module:
        net = without_guards(copy_of(self.posterior.nets(self.net)[member]))
        return folded(self.posterior.install(net, weights))

    def _locked(self) -> Any:
        """Swapping weights is not thread-safe; compiled code cannot hold a lock and does not swap."""
        return nullcontext() if compiling() else self.lock.free()

    def __setstate__(self, state: dict[str, Any]) -> None:  # a deepcopy is a model of its own
        super().__setstate__(state)
        self.fitted_at = None
        MODELS.add(self)
