"""How often the check of a sampler is wrong: alarms for chains that are right, silence for chains that are not.

    python benchmarks/sampling_check.py                # 1,200 chains of each kind, two minutes of one core
    python benchmarks/sampling_check.py --chains 10    # 120 of each kind
    python benchmarks/sampling_check.py --fits 100     # and runs of bf.fit as anyone would start them, 5 s each
    python benchmarks/sampling_check.py --chains 0 --samplers atmc --fits 5 --means 0 5 10 20 50 100
    python benchmarks/sampling_check.py --chains 0 --seeds 20      # one regression, 3,000 steps a seed

Conjugate linear regressions, of which the posterior is known. Right chains start in the posterior, with a mass that
holds curvature and gradient noise; wrong ones start far from it at the sampler's default, so that thermostats wind up
or gradient noise is too much. A chain is wrong where the mean square about the exact mean is off by more than a factor
of four in some weight; all others count in neither column. Slow chains start in the posterior too, but inputs are so
correlated that they do not go round it: all are wrong. Twenty draws of right and of slow chains are compared, those of
one chain and of four together; every chain has the test of its mean gradient ("pulled"). The last rows are `bf.fit`
with nothing set, those of `--means` on features that have one, with a bias.
"""

import argparse
import math
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.engine.sampling_check import AWAY, spread_out
from bayesify.samplers import SAMPLERS
from bayesify.samplers.agreement import judge
from bayesify.samplers.check import Watch, has_thermostat, seen
from bayesify.samplers.findings import FEWEST, drift, findings
from bayesify.samplers.pull import on_its_way
from timing import table

WRONG = 4.0
#: seed, weights, condition, std of the targets, batch
TARGETS = [(1, 5, 1, 0.1, 200), (2, 5, 30, 0.2, 200), (3, 5, 10, 0.3, 50), (4, 5, 3, 0.05, 100)]
SLOW = [(5, 5, 500, 0.1, 20), (6, 5, 1000, 0.2, 20), (7, 5, 3000, 0.05, 50), (8, 5, 10000, 0.1, 200)]
BOLD = [(1, 4, 1, 0.1, 200), (1, 4, 1, 0.1, 100), (2, 4, 30, 0.2, 200), (4, 4, 3, 0.05, 20)]


class Target(NamedTuple):
    """y = x w + noise for 200 examples, and the posterior of w under N(0, 1)."""

    x: Tensor
    y: Tensor
    std: float
    batch: int
    mean: Tensor
    covariance: Tensor

    @classmethod
    def make(
        cls, seed: int, size: int, condition: float, std: float, batch: int, mean: float | None = None
    ) -> "Target":
        """Inputs whose covariance has this condition number, turned at random; with a `mean` each has it, and the last
        is the 1 of a bias."""
        generator = torch.Generator().manual_seed(seed)
        turn = torch.linalg.qr(torch.randn(size, size, generator=generator))[0]
        x = torch.randn(200, size, generator=generator) * torch.logspace(0, -math.log10(condition) / 2, size)
        x = x @ turn
        if mean is not None:
            x, size = torch.cat([x + mean, torch.ones(200, 1)], 1), size + 1
        y = x @ torch.randn(size, generator=generator) + std * torch.randn(200, generator=generator)
        return cls.of(x, y, std, batch)

    @classmethod
    def of(cls, x: Tensor, y: Tensor, std: float, batch: int) -> "Target":
        covariance = torch.linalg.inv((x.T @ x / std**2 + torch.eye(x.shape[1])).double())
        return cls(x, y, std, batch, covariance @ (x.T @ y / std**2).double(), covariance)

    @classmethod
    def small(cls) -> "Target":
        """Three features and a bias, batches of half of the data."""
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(200, 3, generator=generator)
        y = x @ torch.tensor([1.0, -0.5, 0.2]) + 0.1 * torch.randn(200, 1, generator=generator)[:, 0]
        return cls.of(torch.cat([x, torch.ones(200, 1)], 1), y, 0.1, 100)

    def safe_mass(self, h: float) -> float:
        """√(λ/m) h ≤ 0.6, and h V / 2 m T D ≤ 0.1."""
        steepest = 1 / torch.linalg.eigvalsh(self.covariance)[0].item()
        residual = self.x @ self.mean.float() - self.y
        each = (residual[:, None] * self.x / self.std**2).var(0).max().item()
        noise = each * len(self.x) ** 2 / self.batch * (1 - self.batch / len(self.x))
        return max(steepest * h**2 / 0.36, h**2 * noise / (2 * 0.105 * 0.1))

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Endless, every example once in an epoch."""
        while True:
            for index in torch.randperm(len(self.x)).split(self.batch):
                yield self.x[index], self.y[index]


def verdicts(
    name: str, target: Target, chains: int, steps: int, right: bool, seed: int
) -> tuple[Tensor, list[set[str]], Tensor]:
    """Mean square over exact variance of every weight, (chains, weights), the kinds of findings of every chain, and
    their draws, (chains, draws, weights)."""
    torch.manual_seed(seed)
    kind, n = SAMPLERS[name], len(target.x)
    h = kind.default_lr(n)
    start = torch.randn(chains, len(target.mean))
    if right:
        start = (target.mean + start.double() @ torch.linalg.cholesky(target.covariance).T).float()
    settings = kind.settings(h, n) | ({"mass": target.safe_mass(h)} if right else {})
    w = nn.Parameter(start)
    sampler = kind([w], lr=h, num_data=n, seed=seed, **settings)
    watch = Watch(lambda step: step > steps // 2, steps, chains)
    found: list[set[str]] = [set() for _ in range(chains)]
    squares, batches = torch.zeros(w.shape, dtype=torch.float64), target.batches()
    kept: list[Tensor] = []
    for step in range(1, steps + 1):
        x, y = next(batches)
        w.grad = ((w.detach() @ x.T - y) @ x) / target.std**2 / len(y) + w.detach() / n
        watch.before(step, sampler, {"w": w})
        sampler.step()
        for window in watch.windows:
            if step == window[-1]:
                rows = list(seen(sampler, "w", w, sampler.param_groups[0], len(window), chains))
                for kinds, each in zip(found, rows, strict=True):
                    kinds.update(findings([each], has_thermostat(sampler)))
        if step == steps and watch.pull is not None:
            for kinds, strength in zip(found, watch.pull.found(sampler, {"w": w}), strict=True):
                kinds.update(on_its_way(strength[None]))
        watch.after(step, sampler, {"w": w})
        if step > steps // 2:
            squares += (w.detach() - target.mean).square()
            if (steps - step) % (steps // 2 // FEWEST) == 0:
                kept.append(w.detach().clone())
    ratio = squares / (steps - steps // 2) / target.covariance.diag()
    return ratio, found, torch.stack(kept[-FEWEST:], 1)


def compared(target: Target, draws: Tensor, together: int) -> list[set[str]]:
    """The kinds of findings in the draws of so many chains at a time."""
    away = spread_out(target.x)
    assert away is not None
    return [
        set(judge(part @ target.x.T) or judge(part @ away.T, AWAY))
        | set(drift(-part.square().sum(-1) / 2, "log prior"))
        for part in draws.split(together)
        if len(part) == together
    ]


def row(
    label: str, ratios: list[Tensor], found: list[set[str]], right: bool, slow: bool = False
) -> list[str]:
    """A row of the table: alarms among right chains, or silence among wrong ones."""
    ratio = torch.cat(ratios)
    off = ((ratio > WRONG) | (ratio < 1 / WRONG)).any(1).tolist()
    wrong = [slow] * len(found) if right or slow else off
    kinds = Counter(kind for each in found for kind in each)
    alarms = sum(map(bool, found)) if right else 0
    silent = 0 if right else sum(w and not each for w, each in zip(wrong, found, strict=True))
    worst = f"{ratio.mean(0).min():.2f} to {ratio.mean(0).max():.2g}"
    counted = ", ".join(f"{kind} {number}" for kind, number in kinds.items())
    return [label, str(len(found)), worst, str(sum(wrong)), str(alarms), str(silent), counted]


def far(name: str, chains: int, steps: int) -> list[str]:
    """From far starts, by the sampler's default mass."""
    ratios, found = [], []
    for number, settings in enumerate(BOLD):
        ratio, kinds, _ = verdicts(name, Target.make(*settings), chains, steps, False, number)
        ratios.append(ratio)
        found += kinds
    return row(f"{name}, default, far start", ratios, found, right=False)


def inside(name: str, slow: bool, chains: int, steps: int) -> list[list[str]]:
    """From starts in the posterior: a row for one chain, and one for four together."""
    ratios: list[Tensor] = []
    alone: list[set[str]] = []
    four: list[set[str]] = []
    for number, settings in enumerate(SLOW if slow else TARGETS):
        target = Target.make(*settings)
        ratio, kinds, draws = verdicts(name, target, chains, steps, True, number)
        ratios.append(ratio)
        alone += map(set.union, kinds, compared(target, draws, 1))
        four += compared(target, draws, 4)
    label = f"{name}, {'slow' if slow else 'right'}"
    return [
        row(label, ratios, alone, not slow, slow),
        row(f"{label}, 4 chains", ratios, four, not slow, slow),
    ]


def fit(name: str, target: Target, bias: bool, epochs: int, seed: int) -> tuple[Tensor, set[str]]:
    """Draws of `bf.fit` by the method's defaults, (draws, weights), and the kinds of its findings."""
    torch.manual_seed(seed)
    method: Any = bf.ThermostatMCMC(sampler=name, num_kept=200)
    size = len(target.mean) - bias
    net, likelihood = nn.Linear(size, 1, bias=bias), bf.likelihood("normal", std=target.std)
    model = bf.bayesify(net, method, likelihood, num_data=len(target.x))
    data = TensorDataset(target.x[:, :size], target.y[:, None])
    loader = DataLoader(data, batch_size=target.batch, shuffle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        bf.fit(model, loader, epochs=epochs, progress=False, seed=seed, accelerator="cpu")
    each = [torch.cat([w.flatten() for w in weights.values()]) for _, weights in model.posterior.each()]
    return torch.stack(each).double(), set(model.posterior.findings)


def fits(name: str, runs: int, steps: int, mean: float | None = None) -> list[str]:
    """With a `mean` of the features, each run has a target of its own."""
    ratios, found = [], []
    for run in range(runs):
        settings = TARGETS[run % len(TARGETS)] if mean is None else (run, 5, 1, 0.3, 20, mean)
        target = Target.make(*settings)
        draws, kinds = fit(name, target, mean is not None, steps // -(-len(target.x) // target.batch), run)
        ratios.append(((draws - target.mean).square().mean(0) / target.covariance.diag())[None])
        found.append(kinds)
    label = "" if mean is None else f", features of mean {mean:g}"
    return row(f"{name}, bf.fit{label}", ratios, found, right=False)


def seeds(name: str, count: int) -> list[str]:
    """Variance of the draws over the exact one, of one small regression and the seeds from 1 to `count`."""
    target, epochs = Target.small(), 1500
    runs = [fit(name, target, True, epochs, seed) for seed in range(1, count + 1)]
    ratios = torch.stack([draws.var(0) / target.covariance.diag() for draws, _ in runs])
    mean, warned = ratios.mean(0), sum(bool(kinds) for _, kinds in runs)
    numbers = (mean.min(), mean.max(), ratios.min(), ratios.max())
    return [name, str(count), *(f"{number:.2f}" for number in numbers), str(warned)]


def main() -> None:
    """A row for every sampler and kind of start."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--chains", type=int, default=100, help="of each of four targets")
    parser.add_argument("--steps", type=int, default=6000, help="of a chain, half of them burn-in")
    parser.add_argument("--fits", type=int, default=0, help="runs of bf.fit of each sampler")
    parser.add_argument(
        "--means", type=float, nargs="+", default=[], help="of features, a row of bf.fit each"
    )
    parser.add_argument("--seeds", type=int, default=0, help="of bf.fit on one small regression")
    parser.add_argument("--samplers", nargs="+", default=["atmc", "sgnht", "sghmc"], choices=SAMPLERS)
    options = parser.parse_args()
    rows = []
    for name in options.samplers:
        if options.chains and "mass" in SAMPLERS[name].settings(1e-3, 1):
            rows += inside(name, False, options.chains, options.steps)
            rows += inside(name, True, options.chains, options.steps)
        if options.chains:
            rows.append(far(name, options.chains, options.steps))
        if options.fits:
            means = options.means or [None]
            rows += [fits(name, options.fits, options.steps, mean) for mean in means]
    header = ["chains", "runs", "mean ratio", "wrong", "false alarms", "missed", "findings"]
    if rows:
        table("The check of a sampler", rows, header)
    if options.seeds:
        header = [
            "variance over exact",
            "seeds",
            "mean: least",
            "most",
            "of one run: least",
            "most",
            "warned of",
        ]
        table("One regression", [seeds(name, options.seeds) for name in options.samplers], header)


if __name__ == "__main__":
    main()
