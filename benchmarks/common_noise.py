"""What gradient noise that coordinates have in common does to a chain and its predictions, and what it costs to look.

    python benchmarks/common_noise.py                  # the MLP, three chains, three minutes of one core
    python benchmarks/common_noise.py --nets cnn --chains 2 --steps 3000
    python benchmarks/common_noise.py --nets --cost    # CPU ms of a step, outside and inside of a window of the check
    python benchmarks/common_noise.py --nets --regressions    # linear models, whose posterior is known

Chains of `bf.fit` on scikit-learn's digits (temperature 1, batches of 64) go on from where they are, with other
gradients or other masses: those of all data are free of noise, and what they predict is what the others should. "B/D"
is along the direction of most noise (`samplers/common_noise.py`), as the check measures it in the last 200 steps;
"fit" is the training loss of a draw, in nats over all examples; "entropy" that of the predictive on the test images,
"disagreement" its epistemic part. "off": the distance of the predictive probabilities (total variation, mean over
test images) from those of the same chain with all data; "apart": that of two of these chains, of the kind of the row.
"""

import argparse
import copy
import statistics
import time
import warnings
from itertools import count, pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.evaluation.metrics.calibration import ece
from bayesify.samplers.check import WINDOW, Watch
from bayesify.samplers.common_noise import Common, CommonNoise
from sampling_check_nets import net
from timing import table

EPOCHS = {"mlp": 100, "cnn": 60}
#: name -> batch (0: all data), factor of the masses, factor of the friction
KINDS = {
    "all data": (0, 1.0, 1.0),
    "batches of 64": (64, 1.0, 1.0),
    "32": (32, 1.0, 1.0),
    "16": (16, 1.0, 1.0),
    "4": (4, 1.0, 1.0),
    "64, masses × 8": (64, 8.0, 1.0),
    "64, D × 8": (64, 1.0, 8.0),
}


def everything(data: Any) -> tuple[Tensor, Tensor]:
    return next(iter(Loader(data, len(data))))


def fitted(name: str, seed: int) -> tuple[Any, Any]:
    """A model and its sampler after `bf.fit`."""
    data, seen = load("digits").train, []
    torch.manual_seed(seed)
    model = bf.bayesify(net(name), bf.ThermostatMCMC(temperature=1.0), num_data=len(data))
    hook = register_optimizer_step_pre_hook(lambda sampler, *_: seen.append(sampler) if not seen else None)
    loader = Loader(data, 64, shuffle=True)
    bf.fit(model, loader, epochs=EPOCHS[name], progress=False, seed=seed, compile=False)
    hook.remove()
    return model, seen[0]


def change(sampler: Any, masses: float, friction: float) -> None:
    """Momenta keep their temperature, thermostats take as much noise away as before."""
    for group in sampler.param_groups:
        group["noise"] *= friction
        for state in (sampler.state[p] for p in group["params"] if "mass" in sampler.state[p]):
            state["mass"].mul_(masses)
            state["momentum"].mul_(masses**0.5)
            state["thermostat"].div_(masses)


def go_on(model: Any, sampler: Any, batch: int, steps: int, seed: int) -> dict[str, Any]:
    """So many steps, of which the last two thirds count."""
    (x, y), (test, truth) = everything(load("digits").train), everything(load("digits").test)
    generator, size = torch.Generator().manual_seed(seed), len(y)
    draws, fit, shares = [], [], list[Common]()
    watch = Watch(None)
    watch.add(steps, WINDOW)
    found = watch.common.found
    watch.common.found = lambda *a: shares.extend(found(*a)) or shares  # type: ignore[method-assign,func-returns-value]
    named, order = dict(model.net.named_parameters()), iter(torch.Tensor())
    for step in range(1, steps + 1):
        index = next(order, None) if batch else slice(None)
        if index is None:
            whole = torch.randperm(size, generator=generator)[: size // batch * batch]
            order = iter(whole.split(batch))
            index = next(order)
        sampler.zero_grad()
        loss = F.cross_entropy(model.net(x[index]), y[index]) + model.posterior.kl(model.net) / size
        loss.backward()
        watch.before(step, sampler, named)
        sampler.step()
        watch.after(step, sampler, named)
        if step > steps // 3 and step % 20 == 0:
            with torch.no_grad():
                draws.append(model.net(test).softmax(-1))
                fit.append(float(F.cross_entropy(model.net(x), y)) * size)
    each = torch.stack(draws)
    probs = each.mean(0)
    entropy = torch.special.entr(probs).sum(-1).mean()
    return {
        "probs": probs,
        "B/D": shares[0].share,
        "fit": statistics.mean(fit),
        "nll": float(-probs.gather(1, truth[:, None]).log().mean()),
        "accuracy": float((probs.argmax(-1) == truth).float().mean()),
        "ece": float(ece(probs, truth)),
        "entropy": float(entropy),
        "disagreement": float(entropy - torch.special.entr(each).sum(-1).mean()),
    }


def distance(p: Tensor, q: Tensor) -> float:
    return float((p - q).abs().sum(-1).mean() / 2)


def predictions(name: str, chains: int, steps: int) -> None:
    """A row for every kind of noise."""
    runs: dict[str, list[dict[str, Any]]] = {kind: [] for kind in KINDS}
    for seed in range(chains):
        model, sampler = fitted(name, seed)
        weights, state = copy.deepcopy(model.net.state_dict()), copy.deepcopy(sampler.state_dict())
        for kind, (batch, masses, friction) in KINDS.items():
            model.net.load_state_dict(weights)
            sampler.load_state_dict(copy.deepcopy(state))
            sampler.warm = None
            change(sampler, masses, friction)
            runs[kind].append(go_on(model, sampler, batch, steps, seed))
    rows = []
    exact = [run["probs"] for run in runs["all data"]]
    for kind, each in runs.items():
        numbers = [statistics.mean(run[key] for run in each) for key in each[0] if key != "probs"]
        mine = [run["probs"] for run in each]
        apart = [distance(p, q) for i, p in enumerate(mine) for q in mine[:i]]
        off = statistics.mean(distance(p, q) for p, q in zip(mine, exact, strict=True))
        texts = [f"{number:.3f}" if i > 1 else f"{number:.1f}" for i, number in enumerate(numbers)]
        rows.append([kind, *texts, f"{off:.3f}", f"{statistics.mean(apart):.3f}" if apart else ""])
    header = ["", *[key for key in runs["all data"][0] if key != "probs"], "off", "apart"]
    table(f"{name}: {chains} chains, {steps} steps", rows, header)


class Own(nn.Module):
    """A layer that nobody knows for one: it has no axes."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.1 * torch.randn(size, 1))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def regression(size: int, number: int, alike: float, axes: bool) -> list[str]:
    """Twenty chains of `bf.sample_chains`, 8,000 steps in batches of 20; features whose part in common is `alike`
    times as wide as the rest. What draws and predictions have of their exact variances."""
    generator = torch.Generator().manual_seed(size + number)
    x = torch.randn(number, size, generator=generator) + alike * torch.randn(number, 1, generator=generator)
    y = x @ torch.randn(size, 1, generator=generator) + 0.3 * torch.randn(number, 1, generator=generator)
    covariance = torch.linalg.inv((x.T @ x / 0.09 + torch.eye(size)).double())
    mean = covariance @ (x.T @ y / 0.09).double()
    torch.manual_seed(0)
    layer = nn.Linear(size, 1, bias=False) if axes else Own(size)
    likelihood = bf.likelihood("normal", std=0.3)
    model = bf.bayesify(layer, bf.ThermostatMCMC(num_kept=50), likelihood, num_data=number)
    shares: list[float] = []
    found = CommonNoise.found

    def record(*given: Any) -> list[Common]:
        every = found(*given)
        shares[:] = [each.share for each in every]
        return every

    CommonNoise.found = record  # type: ignore[method-assign]
    try:
        loader = DataLoader(TensorDataset(x, y), 20, shuffle=True)
        bf.sample_chains(model, loader, num_chains=20, epochs=8000 * 20 // number, seed=0)
    finally:
        CommonNoise.found = found  # type: ignore[method-assign]
    weights = [torch.cat([w.flatten() for w in draw.values()]) for _, draw in model.posterior.each()]
    off = torch.stack(weights).double() - mean.T
    values, vectors = torch.linalg.eigh(torch.linalg.inv(covariance))
    along = (off @ vectors).square().mean(0) * values
    inputs = x.double()
    predicted = (inputs @ off.T).square().mean(1) / ((inputs @ covariance) * inputs).sum(1)
    numbers = [along[-1], along[:-1].min(), along[:-1].max(), predicted.mean(), predicted.max()]
    label = f"{size} features{', axes' * axes}"
    return [label, f"{statistics.mean(shares):.2f}", *(f"{float(n):.2f}" for n in numbers)]


def cost(sizes: tuple[int, ...]) -> list[str]:
    """ms of a training step of an MLP, of one in a window of the check without this look, and with it: the least CPU
    time of blocks of 20."""
    layers = [nn.Linear(a, b) for a, b in pairwise(sizes)]
    network = nn.Sequential(*[part for layer in layers for part in (layer, nn.ReLU())][:-1])
    x, y = torch.randn(64, sizes[0]), torch.randint(10, (64,))
    sampler = bf.samplers.ATMC(network.parameters(), lr=1e-3, num_data=1000, mass=100.0)
    named, watch, places = dict(network.named_parameters()), Watch(None), count(1)
    watch.add(10**9, 10**9)
    look = watch.common.look
    least = [float("inf")] * 3
    for block in range(31):
        way = 2 if block == 0 else block % 3  # the first begins the window
        watch.common.look = look if way == 2 else lambda *_: None  # type: ignore[method-assign]
        start = time.process_time()
        for _ in range(20):
            sampler.zero_grad()
            F.cross_entropy(network(x), y).backward()
            if way:
                watch.before(next(places), sampler, named)
            sampler.step()
        least[way] = min(least[way], (time.process_time() - start) / 20)
    return [f"{1000 * seconds:.2f}" for seconds in least]


def main() -> None:
    """The tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nets", nargs="*", default=["mlp"], choices=["mlp", "cnn"])
    parser.add_argument("--chains", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6000, help="after those of bf.fit")
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--regressions", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.nets:
        predictions(name, options.chains, options.steps)
    if options.regressions:
        cases = [(50, 1000, 1.0), (20, 500, 2.0)]
        rows = [regression(*case, axes) for axes in (False, True) for case in cases]
        header = ["", "B/D", "stiffest", "others: least", "most", "predictions: mean", "most"]
        table("variance over exact", rows, header)
    if options.cost:
        nets = {"digits, MLP": (64, 50, 10), "1.8 million weights": (784, 1000, 1000, 10)}
        rows = [[label, *cost(sizes)] for label, sizes in nets.items()]
        table("CPU ms a step", rows, ["", "outside", "in a window", "and the direction"])


if __name__ == "__main__":
    main()
