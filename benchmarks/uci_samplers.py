"""UCI regression with samplers against MAP and variational inference: RMSE and log-likelihood, standard splits.

    python benchmarks/uci_samplers.py --data-root DATA    # 5 splits, 8 minutes of one core
    python benchmarks/uci_samplers.py --data-root DATA --data yacht --splits 2 --epochs 100

One hidden layer of 50 ReLU units, standardised inputs and targets, standard normal prior on every weight, one noise
level that all methods learn (the samplers at temperature 0), batches of 100. MAP and VI: Adam, cosine schedule.
A chain starts from the MAP estimate with mass and thermostat rate by `bf.diagnostics.suggest` from the curvature
there; SGLD's step is h²/m of theirs: the same curvature limits both. The first third is burn-in, 100 draws are kept.
Both scores are in original units; the log-likelihood is log 1/S Σ_s N(y; f_s, σ²), mean per example.
"""

import argparse
import copy
import sys
import time
from typing import Any

import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.nets import make
from bayesify.studies.diagnostics import suggest
from timing import table

METHODS = ("MAP", "VI", "SGLD", "SGNHT", "ATMC")
STEP = 1e-3  # h of the samplers with momentum: only h²/m matters, which the suggested mass sets


class Split:
    """One split: its loaders, and the whole training set as one batch."""

    def __init__(self, name: str, index: int, root: str) -> None:
        data = load(f"uci_{name}", root, split=index)
        shared = {"normalise": data.normalisation}
        self.train = Loader(data.train, 100, shuffle=True, seed=index, **shared)
        self.x, self.y = next(iter(Loader(data.train, len(data.train), **shared)))
        self.test = next(iter(Loader(data.test, len(data.test), **shared)))
        self.scale = data.normalisation.original_std(torch.ones(1, 1)).double()
        self.seed = index

    def model(self, method: Any, net: nn.Module | None = None, std: float = 0.5) -> bf.BayesianModule:
        torch.manual_seed(self.seed)
        net = make("mlp", num_outputs=1, input_shape=self.x.shape[1:], hidden=(50,)) if net is None else net
        return bf.bayesify(
            net, method, bf.likelihood("normal", std=std, learn_std=True), num_data=len(self.x)
        )

    def fit(
        self, model: bf.BayesianModule, epochs: int, lr: float, schedule: str | None
    ) -> bf.BayesianModule:
        options = {"accelerator": "cpu", "progress": False, "seed": self.seed}
        bf.fit(model, self.train, epochs=epochs, lr=lr, schedule=schedule, **options)
        return model

    def score(self, model: bf.BayesianModule) -> list[float]:
        """RMSE and log-likelihood in original units."""
        x, y = self.test
        prediction = model.predict(x, 100, keep_samples=True)
        rmse = (prediction.mean - y).double().square().mean().sqrt() * self.scale
        log_likelihood = prediction.log_prob(y).double().mean() - self.scale.log()
        return [rmse.item(), log_likelihood.item()]


def run(split: Split, a: argparse.Namespace) -> dict[str, list[float]]:
    """The scores of every method on one split."""
    point = split.fit(split.model(bf.Point(prior="normal")), a.epochs, 1e-2, "cosine")
    vi = split.fit(split.model(bf.MonteCarloVI(sampling="local")), 2 * a.epochs, 1e-2, "cosine")
    found = {"MAP": split.score(point), "VI": split.score(vi)}
    tuned = suggest(point, split.x, split.y, lr=STEP)
    for name in METHODS[2:]:
        found[name] = split.score(sample(split, name.lower(), point, tuned, 5 * a.epochs))
    return found


def sample(
    split: Split, sampler: str, point: bf.BayesianModule, tuned: Any, epochs: int
) -> bf.BayesianModule:
    """A chain from the MAP estimate on."""
    moving = {} if sampler == "sgld" else {"mass": tuned.mass, "thermostat_rate": tuned.thermostat_rate}
    method = bf.ThermostatMCMC(sampler=sampler, burn_in=1 / 3, num_kept=100, **moving)
    model = split.model(method, copy.deepcopy(point.net), point.likelihood.std.item())
    return split.fit(model, epochs, tuned.lr**2 / tuned.mass if sampler == "sgld" else tuned.lr, None)


def cell(scores: Tensor) -> str:
    return f"{scores.mean():.2f} ± {scores.std() / len(scores) ** 0.5:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--data", nargs="+", default=["boston", "yacht", "concrete"])
    parser.add_argument("--splits", type=int, default=5, help="of the 20 standard ones")
    parser.add_argument(
        "--epochs", type=int, default=200, help="of MAP; VI takes twice, a chain five times as many"
    )
    a = parser.parse_args()
    for name in a.data:
        start, found = time.perf_counter(), []
        for index in range(a.splits):
            found.append(run(Split(name, index, a.data_root), a))
            print(f"... {name} {index}: {found[-1]}", file=sys.stderr, flush=True)
        scores = {method: torch.tensor([one[method] for one in found]) for method in METHODS}  # (splits, 2)
        rows = [[method, cell(s[:, 0]), cell(s[:, 1])] for method, s in scores.items()]
        seconds = time.perf_counter() - start
        table(
            f"{name}: {a.splits} splits, {a.epochs} epochs, {seconds:.0f} s",
            rows,
            ["", "RMSE", "log-likelihood"],
        )


if __name__ == "__main__":
    main()
