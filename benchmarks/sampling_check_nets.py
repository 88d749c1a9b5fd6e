"""What the check of a sampler says of small networks: four runs of `bf.fit` each, at temperature 1.

    python benchmarks/sampling_check_nets.py             # two minutes of one core
    python benchmarks/sampling_check_nets.py --epochs 100 --nets mlp

Each run is judged by itself, from its 20 draws: "found" counts runs with a `bf.SamplingWarning`, and its
kinds; "worth" is how many independent ones they are. The other columns are of the four chains together, which no run
can see: R-hat of logits, of probabilities, and of probabilities away from the training inputs.
"""

import argparse
import warnings
from collections import Counter

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.engine.sampling_check import predicted, spread_out
from bayesify.evaluation.convergence import function_values
from bayesify.samplers.convergence import rhat, worth
from timing import table

BATCH, RUNS = 50, 4


def digits() -> tuple[Tensor, Tensor]:
    """The training images of scikit-learn's digits, standardised."""
    data = bf.data.load("digits").train
    images = torch.as_tensor(data.inputs).float()
    return (images - images.mean()) / images.std(), data.targets


def xor() -> tuple[Tensor, Tensor]:
    """200 points of the plane; the class is the sign of x₁ x₂."""
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    return x, (x.prod(1) > 0).long()


def net(name: str) -> nn.Module:
    if name == "xor":
        return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.ReLU(), nn.Linear(50, 10))
    convolutions = [nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Conv2d(8, 16, 3), nn.ReLU()]
    return nn.Sequential(*convolutions, nn.Flatten(), nn.Linear(256, 10))


def row(name: str, sampler: str, epochs: int) -> list[str]:
    """Four runs of one network."""
    x, y = xor() if name == "xor" else digits()
    found, warned, values = Counter[str](), 0, []
    for seed in range(RUNS):
        torch.manual_seed(seed)
        model = bf.bayesify(net(name), bf.ThermostatMCMC(sampler=sampler, temperature=1.0), num_data=len(x))
        loader = DataLoader(TensorDataset(x, y), batch_size=BATCH, shuffle=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bf.SamplingWarning)
            bf.fit(model, loader, epochs=epochs, progress=False, seed=seed, accelerator="cpu")
        found.update([*model.posterior.findings])
        warned += bool(model.posterior.findings)
        some, away = x[:64], spread_out(x)
        assert away is not None
        values.append((function_values(model, some), predicted(model, some), predicted(model, away)))
    chains = [torch.cat(each) for each in zip(*values, strict=True)]
    sizes = [worth(chain) for chain in chains[1]]
    return [
        name,
        str(epochs * len(x) // BATCH),
        " ".join([str(warned), *(f"{kind} {count}" for kind, count in found.items())]),
        f"{min(sizes):.1f} to {max(sizes):.1f}",
        *(f"{rhat(each, pooled=True):.2f}" for each in chains),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--nets", nargs="+", default=["xor", "mlp", "cnn"], choices=["xor", "mlp", "cnn"])
    parser.add_argument("--sampler", default="atmc")
    parser.add_argument("--epochs", type=int, nargs="+", default=[30])
    options = parser.parse_args()
    rows = [row(name, options.sampler, epochs) for name in options.nets for epochs in options.epochs]
    header = ["net", "steps", "found", "worth", "logits", "probabilities", "away"]
    table(f"{RUNS} runs of bf.fit, 20 draws of each", rows, header)


if __name__ == "__main__":
    main()
