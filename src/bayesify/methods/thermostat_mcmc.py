"""Stochastic-gradient MCMC: the optimiser is a sampler, the posterior a chain of its draws."""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from bayesify.checks import Count, NotNegative, Positive, Range
from bayesify.likelihoods import Likelihood
from bayesify.methods.base import Method, around
from bayesify.names import check_choice, lookup
from bayesify.posteriors.chain.chain import KEEPS, Chain, Due
from bayesify.posteriors.shared_generator import shared_generator
from bayesify.priors import Prior, prior
from bayesify.samplers import SAMPLERS, Sampler, SamplingWarning
from bayesify.samplers.schedules import Cyclic, EvenTimes, SampleTimes, burn_in_steps, check_burn_in
from bayesify.weights import Selection, where
from bayesify.weights.calls import is_sharded
from bayesify.weights.kinds import is_linear_model
from bayesify.weights.where import Where

#: fields that are handed on to a sampler with a setting of that name
HANDED_ON = ("mass", "noise", "max_speed", "thermostat_rate", "temperature", "integrator")
BURN_IN = {False: 0.5, True: 0.1}  # by whether the network is trained already
COLD = 0.01  # the temperature for classes, of more random weights than examples
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class ThermostatMCMC(Method):
    """Draws from the posterior by a sampler: "atmc", "sgnht", "sghmc", "sgld", "psgld", or a name of one's own in
    `bf.samplers.SAMPLERS`.

    `model.optimizer(lr)` is the sampler, with step size h = lr. With momentum the step of the mean loss is
    like that of SGD with learning rate h² num_data / mass and momentum 0.9. For "sgld" it is lr · num_data.
    Without lr: 1e-3; 0.0045 / num_data for "sgld", which is as large a step; 0.01 / num_data^1.5 for "psgld".
    These two have no thermostat: steps that are too large, and noisy gradients, make the draws too wide.
    `bf.diagnostics.suggest` gives a mass, or for samplers without one a step size, for the network at hand.

    sampler:         by its name, see above
    prior:           a name or `bf.prior(...)`; None: "normal"; around the network's weights with
                     `start="pretrained"`
    mass:            None: one for every weight, found in the burn-in (see `warm_start`); 5.6e-5 · num_data without, as
                     behind a plain network, so that lr = 1e-3 is like SGD at 0.018 (paper 4 on CIFAR-10: a quarter of
                     that)
    noise:           friction and noise D; None: −log(0.9) / lr
    max_speed:       c of the hyperbolic kinetic energy; None: Gaussian
    thermostat_rate: κ; None: 0.001 / lr², so that the thermostat follows within some hundred steps (the paper's
                     1 takes 1000 times as long at lr = 1e-3)
    temperature:     1 is Bayes, less a cold posterior; None: 1, but 0.01 for classes where more weights are random
                     than there are examples: at 1 a draw then pays for the entropy of all that the data leave open,
                     and networks come out far less accurate than plain ones (docs/results/samplers.md). In `bf.fit` a
                     cold chain goes on from a plain network (`plain_first`), without a warm start
    integrator:      "fused" or "strang", of the samplers with momentum
    warm_start:      descend at temperature 0 in part of the burn-in, then set masses and thermostats to what
                     curvature and gradient noise ask for (`bayesify.samplers.warm_start`). A mass that is given stays,
                     and so does the step that is given to "sgld" or "psgld", which then begin as they are
    settings:        what a sampler takes beside these, by name, e.g. {"decay": 0.99} of "psgld"
    burn_in:         steps before the first draw; below 1 a share of the sampler's steps. None: half of them, or a
                     tenth where it goes on from a plain network
    num_kept:        draws to keep, evenly over the rest of the run, where `every` and `cycle` are left out
    every:           steps between draws; with `cycle` counted back from the end of each
    cycle:           length of a cycle of the step size in steps: a falling cosine in each (`Cyclic`), where `bf.fit`
                     gets no other `schedule`. Draws are kept at the ends, or over the last `part` of each with `every`
    part:            share of a cycle, at its end, over which draws are kept
    keep:            "draws", or "moments" (mean and variance of the weights only)
    draw_dtype:      of the stored draws: "float32" or "bfloat16"; None: the parameters' own

    In `bf.fit` draws are kept by themselves, in folder/draws where there is a folder. So they are in a loop of
    one's own, at every step of the sampler, when `burn_in` and `every` or `cycle` are whole numbers of steps or
    `model.optimizer(lr, num_steps=...)` says how long the run is; else `model.collect()` keeps one.

    >>> model = bf.bayesify(net, bf.ThermostatMCMC(sampler="atmc"), num_data=50_000)
    >>> bf.fit(model, train_loader, epochs=100, lr=1e-3)
    >>> model.predict(x)  # the average over the stored draws
    """

    name = "atmc"
    about = "posterior draws by stochastic-gradient MCMC (ATMC, SGNHT, SGHMC, SGLD, pSGLD)"
    paper = "J. Heek, N. Kalchbrenner: Bayesian Inference for Large Scale Image Classification. 2019."

    where: Where = where.all
    sampler: str = "atmc"
    prior: str | Prior | None = None
    mass: Positive | None = None
    noise: NotNegative | None = None
    max_speed: Positive | None = None
    thermostat_rate: NotNegative | None = None
    temperature: NotNegative | None = None
    integrator: str = "fused"
    burn_in: NotNegative | None = None
    num_kept: Count = 20
    every: Count | None = None
    cycle: Count | None = None
    part: Annotated[float, Range(above=0, most=1)] = 1.0
    keep: str = "draws"
    draw_dtype: str | None = None
    settings: dict[str, Any] | None = None
    warm_start: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        lookup(SAMPLERS, self.sampler, "sampler")
        check_choice(KEEPS, self.keep, "keep")
        if self.draw_dtype is not None:
            lookup(DTYPES, self.draw_dtype, "draw_dtype")
        if isinstance(self.prior, str):
            object.__setattr__(self, "prior", prior(self.prior))
        self._check_settings()
        check_burn_in(self.burn_in)
        self.sample_times(1000)

    def _check_settings(self) -> None:
        """Settings that the sampler lacks are named; the others it checks itself, with a weight to throw away."""
        kind = SAMPLERS[self.sampler]
        declared = kind.settings(1e-3, 1)
        for name in HANDED_ON:
            if name not in declared and getattr(self, name) != getattr(type(self), name):
                warnings.warn(
                    f"{name}={getattr(self, name)!r} changes nothing: sampler={self.sampler!r} has no such setting",
                    stacklevel=4,
                )
        own = declared.keys() - set(HANDED_ON)
        for name in self.settings or {}:
            check_choice(own, name, f"sampler={self.sampler!r}: setting")
        kind([torch.zeros(1, device="cpu")], lr=1e-3, num_data=1, **self.sampler_settings(1e-3, 1))

    @property
    def recipe(self) -> str:
        """A cold chain stays near the mode that it begins at, and wants a plain network's; steps of samplers with a
        momentum are like those of SGD."""
        if not self._is_cold:
            return self.name
        return "cold_momentum" if self.has("mass") else "cold_langevin"

    @property
    def _is_cold(self) -> bool:
        return self.temperature is not None and 0 < self.temperature < 1

    def for_pretrained(self, net: nn.Module) -> "ThermostatMCMC":
        return self if self.prior is not None else self.decided(prior=around())

    def for_net(self, net: nn.Module, example: Any) -> "ThermostatMCMC":
        return self if self.prior is not None else self.decided(prior=prior("normal"))

    def for_data(self, selection: Selection, likelihood: Likelihood, num_data: int) -> "ThermostatMCMC":
        """The temperature, where it is left open."""
        if self.temperature is not None:
            return self
        crowded = sum(w.numel for w in selection.random) > num_data
        return self.decided(temperature=COLD if crowded and likelihood.is_multiclass else 1.0)

    def notes(self) -> list[str]:
        cold = [f"temperature {self.temperature:.3g}: draws are of a cold posterior"] if self._is_cold else []
        return [*super().notes(), *cold]

    def posterior(self, net: nn.Module, selection: Selection, example: Any) -> Chain:
        """A chain without draws yet."""
        assert isinstance(self.prior, Prior)
        dtype = None if self.draw_dtype is None else DTYPES[self.draw_dtype]
        return Chain(net, selection, self.prior, self.due, self.keep, dtype)

    def check_optimizer(self, optimizer: torch.optim.Optimizer, model: Any) -> None:
        """It must be a sampler of the model's posterior."""
        if not isinstance(optimizer, Sampler):
            raise ValueError(
                f"optimizer={type(optimizer).__name__} finds a point and does not draw from the posterior: leave "
                f"optimizer= out (the method's own sampler), or give one of bf.samplers"
            )
        members = len(model.posterior.nets(model.net))
        if model.num_data is not None and optimizer.num_data != members * model.num_data:
            each = f"{members} members of {model.num_data}" if members > 1 else f"{model.num_data}"
            raise ValueError(
                f"the sampler has num_data={optimizer.num_data}, the model {each} examples: give it "
                f"num_data={members * model.num_data}; a colder or hotter posterior is by temperature="
            )

    def default_lr(self, model: Any) -> float:
        """The sampler's own."""
        if model.num_data is None:
            return super().default_lr(model)
        return SAMPLERS[self.sampler].default_lr(model.num_data, len(model.posterior.nets(model.net)))

    def default_schedule(self) -> Cyclic | None:
        """A falling cosine in every cycle."""
        return None if self.cycle is None else Cyclic(self.cycle)

    def optimizer(self, model: Any, lr: float = 1e-3, **options: Any) -> Sampler:
        """The sampler. num_steps: of the run, where a share of it matters (a warning says so where it is left out;
        None: draws are kept otherwise); seed: of its noise (None: drawn from
        the global generator, and the same on all ranks); other options are the sampler's."""
        if is_sharded(model):
            raise RuntimeError("the samplers do not take sharded parameters (FSDP2): use strategy='ddp'")
        silent = "num_steps" in options
        num_steps, seed = options.pop("num_steps", None), options.pop("seed", None)
        if seed is None:
            seed = shared_generator(next(model.parameters()).device).initial_seed()
        made = self.sampler_of(model, self.groups(model), lr, seed, **options)
        model.posterior.begin(made, num_steps)
        self.begin(model, made, num_steps)
        if not silent and self.due(None) is None:
            warnings.warn(
                f"no draw will be kept: burn_in={self.burn_in!r} and num_kept={self.num_kept!r} are of a run whose "
                f"length is not known here. Give model.optimizer(num_steps=...), or a method with burn_in= and every= "
                f"in steps; num_steps=None where `bf.fit` gets this sampler or model.collect() keeps the draws",
                SamplingWarning,
                stacklevel=3,
            )
        return made

    def begin(self, model: Any, optimizer: Any, num_steps: int | None, trained: bool = False) -> None:
        """The warm start, where it is known how long the burn-in is, and there is a way to go."""
        burn_in, has_mass = self.burn_in_steps(num_steps), self.has("mass")
        if not self.warm_start or burn_in is None or self.temperature == 0 or trained:
            return
        if not optimizer.is_default or optimizer.capturable:  # of a replayed step it sees nothing
            return
        if has_mass or optimizer.param_groups[0]["lr"] == self.default_lr(model):
            linear = all(is_linear_model(net) for net in model.posterior.nets(model.net))
            optimizer.warm_up(burn_in, adapts=not has_mass or self.mass is None, linear=linear)

    def burn_in_steps(self, num_steps: int | None, trained: bool = False) -> int | None:
        """The burn-in of a run of `num_steps` steps; None where that cannot be said."""
        return burn_in_steps(BURN_IN[trained] if self.burn_in is None else self.burn_in, num_steps)

    def sampler_of(
        self, model: Any, groups: list[dict[str, Any]], lr: float, seed: int, **options: Any
    ) -> Sampler:
        """The sampler over `groups` of parameters, for the data of `model`."""
        if model.num_data is None:
            raise ValueError(
                "num_data is missing: it scales the mean loss to the posterior. "
                "Give bayesify(..., num_data=len(train_set))"
            )
        num_data, members = int(model.num_data), len(model.posterior.nets(model.net))
        settings = {**self.sampler_settings(lr, num_data), **options}
        # the loss is the mean over the members
        made = SAMPLERS[self.sampler](groups, lr=lr, num_data=members * num_data, seed=seed, **settings)
        made.is_default, made.num_members = True, members
        return made

    def due(self, num_steps: int | None, trained: bool = False) -> Due | None:
        """When to keep draws in a run of `num_steps` steps; None where that cannot be said."""
        times = self.sample_times(num_steps, trained)
        return None if times is None else times.due

    def sample_times(self, num_steps: int | None, trained: bool = False) -> SampleTimes | EvenTimes | None:
        """When to keep draws in a run of `num_steps` steps, perhaps from a network that is trained already."""
        burn_in, evenly = self.burn_in_steps(num_steps, trained), self.every is None and self.cycle is None
        if burn_in is None or (evenly and num_steps is None):
            return None
        if evenly:
            assert num_steps is not None
            return EvenTimes(burn_in, num_steps - burn_in, self.num_kept)
        return SampleTimes(burn_in, self.every, self.cycle, self.part)

    def has(self, setting: str) -> bool:
        """Does the sampler have this setting?"""
        return setting in SAMPLERS[self.sampler].settings(1e-3, 1)

    def sampler_settings(self, lr: float, num_data: int) -> dict[str, Any]:
        """The sampler's settings for this step and number of examples: its own defaults, and what was given here."""
        declared = SAMPLERS[self.sampler].settings(lr, num_data)
        given = {name: getattr(self, name) for name in HANDED_ON if name in declared}
        given = {name: value for name, value in given.items() if value is not None}
        return declared | given | (self.settings or {})

    def groups(self, model: Any) -> list[dict[str, Any]]:
        """The parameters of `model` that train, as groups of its sampler."""
        random = {id(slot.get()) for part in model.posterior.modules() for slot in _first_slots(part)}
        return groups_of((p for p in model.parameters() if p.requires_grad), random)


def groups_of(parameters: Iterable[Tensor], random: set[int]) -> list[dict[str, Any]]:
    """The parameters whose ids are in `random`, and those that only train, at temperature 0."""
    parameters = [*parameters]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in parameters if id(p) in random]},
        {"params": [p for p in parameters if id(p) not in random], "temperature": 0.0},
    ]
    return [group for group in groups if group["params"]]


def _first_slots(part: nn.Module) -> list[Any]:
    return [slots[0] for slots in part.slots.values()] if isinstance(part, Chain) else []
