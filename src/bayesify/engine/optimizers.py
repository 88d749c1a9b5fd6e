"""The optimiser of a run: one by name, the method's own, or one that is given."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from bayesify.model import BayesianModule
from bayesify.samplers import SamplingWarning

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": torch.optim.SGD,
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
}
#: where nobody gives one
USUAL_LR = {"sgd": 0.1, "adam": 1e-3, "adamw": 1e-3}


def make_optimizer(model: BayesianModule, options: Any) -> torch.optim.Optimizer:
    """That of a run with these options (`FitOptions`)."""
    given, more = options.optimizer, {"momentum": options.momentum, "weight_decay": options.weight_decay}
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError(
            "no parameter of the model trains, all are frozen (requires_grad=False): unfreeze what shall be trained "
            "with requires_grad_(True)"
        )
    for name, value in {"lr": options.lr, **more}.items():
        takes = isinstance(given, str | None) or (
            name == "lr" and not isinstance(given, torch.optim.Optimizer)
        )
        if value is not None and not takes:
            raise ValueError(
                f"{name}={value!r} beside an optimizer of your own, which has its own: give one of them"
            )
    with warnings.catch_warnings():  # how long the run is, the posterior is told next
        warnings.simplefilter("ignore", SamplingWarning)
        if given is None and not any(more.values()):
            return model.optimizer(lr=options.lr)
        if given is None and model.method.own_optimizer:
            name, value = next((name, value) for name, value in more.items() if value)
            raise ValueError(
                f"{name}={value!r}: the optimiser of {model.method.name!r} is its own and takes no {name}; "
                f"leave it out"
            )
        if isinstance(given, str | None):
            made = named_optimizer(model, "adam" if given is None else given, options.lr, **more)
        else:
            made = given if isinstance(given, torch.optim.Optimizer) else given(model.parameters())
    if not isinstance(made, torch.optim.Optimizer):
        raise TypeError(f"optimizer={given!r} returned {made!r}: it must return a torch.optim.Optimizer")
    model.method.check_optimizer(made, model)
    return made


def named_optimizer(
    model: BayesianModule, name: str, lr: float | None, momentum: float | None, weight_decay: float | None
) -> torch.optim.Optimizer:
    """The optimiser of this name, SGD with Nesterov's momentum. What has a prior, or is no weight, does not decay, nor
    do biases under "adamw": the output bias of a regression is as large as its targets.

    What has gradients in a share s of the steps goes as far as the others: with SGD at lr / s, and with Adam, whose
    root mean square of the gradients is smaller by √s, at lr / √s. It decays as they do, too.
    """
    if name != "sgd" and momentum is not None:
        raise ValueError(f"momentum={momentum!r} is of optimizer='sgd', not of {name!r}: leave it out")
    more: dict[str, Any] = {"momentum": momentum, "nesterov": True} if momentum else {}
    trained = [p for p in model.parameters() if p.requires_grad]
    held = {id(p) for p in (*model.likelihood.parameters(), *model.posterior.undecayed(model.net))}
    if name == "adamw":
        held |= {id(p) for path, p in model.named_parameters() if "bias" in path.rpartition(".")[2]}
    lr = USUAL_LR[name] if lr is None else lr
    seldom = {id(p): share for p, share in model.posterior.seldom(model.net).items()}
    groups: dict[tuple[float, float], list[Tensor]] = {}
    for p in trained:
        further = seldom.get(id(p), 1.0) ** (-1.0 if name == "sgd" else -0.5)
        decay = 0.0 if not weight_decay or id(p) in held else weight_decay / further
        groups.setdefault((lr * further, decay), []).append(p)
    if trained and all(p.is_cuda for p in trained):
        more["fused"] = True
    made = [
        {"params": groups[rate, decay], "lr": rate, "weight_decay": decay}
        for rate, decay in sorted(groups, key=lambda key: (key[0], -key[1]))  # the first one's rate is told
    ]
    return OPTIMIZERS[name](made, lr=lr, **more)
