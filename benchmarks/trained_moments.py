"""One-pass moments of trained networks against drawn weights: variances, probabilities, single draws, cost (digits).

    python benchmarks/trained_moments.py --nets mlp cnn --seeds 0 --epochs 30 --draws 200       # CPU: a minute
    python benchmarks/trained_moments.py --kl-weights 1 0.1 --draws 1000 --out trained.json     # all of it: hours
    python benchmarks/trained_moments.py --nets resnet20 --seeds 1 --out resnet20_1.json        # a part of its own
    python benchmarks/trained_moments.py --table *.json                                         # parts together
    python benchmarks/trained_moments.py --nets mlp cnn --objectives probe --seeds 0 --epochs 30 --draws 1000 --forms
                                                                     # the same posteriors, read out in every form
    python benchmarks/trained_moments.py --nets mlp cnn --objectives probe --seeds 0 --epochs 30 --draws 4000
        --input-noise 0.3                                            # what noise in the inputs adds

Every network fresh, then trained by each objective: density propagation with logits "bound" or "probe", and `mc_vi`,
which trains by one draw a step for as many epochs. Columns:

    variance     one-pass ÷ drawn variance of the logits of test images: geometric mean [5 %, 95 %]
    probs        root mean square error of class probabilities
    predict, one draw, draws    accuracy of `model.predict`, of single draws on average, of the average over draws
    nll          mean −log p of `model.predict`
    E nll        mean −log p of single draws
    σ/rms        median over the weights of std ÷ root mean square of the tensor's means
    own          one draw, draws and E nll with batch norm's statistics taken anew for each draw, over the training
                 part. Training by draws leaves running averages over many networks, which may fit none of them: judge
                 its posterior by these (cnn, 100 epochs: one draw .12 with the averages, .91 with its own)
    moved        median change of log σ in training ÷ steps · lr, the most that Adam can do. Near 1 widths still grow
                 as fast as they can: σ/rms then says how long the run was, not what objective and KL weight ask for
    seconds      of training, eager
    pass         time of one pass with its variances ÷ that of the plain network, a batch of test images, eager: on
                 networks as small as these mostly launches

A posterior may be right because it is narrow: compare rows at the same KL weight, beside their σ/rms, once `moved` is
well below 1.
Several seeds: mean ± its error.

--forms reads the same posteriors out by other options of `bf.DensityPropagation`, with columns of their own: outputs,
diagonal, diagonal with gains (`bf.moments.fit_gains`), full covariance, and full covariance to first order.

--input-noise STD gives the inputs (whose std is 1) independent noise, `bf.Moments(x, STD²)`. A table has the parts of
`bf.moments.sources` ÷ drawn variances: "weights" ÷ that of drawn weights; "inputs" ÷ that of noisy inputs to the
network of mean weights, and ÷ what noise adds when both are drawn; and the whole ÷ that of both.
"""

import argparse
import dataclasses
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import DataSet, Loader, load
from bayesify.evaluation import statistics
from bayesify.nets import make
from bayesify.nets.resnet import BasicBlock
from timing import add_record, measure, table

Record = dict[str, Any]
SHAPE = (1, 8, 8)
NETS: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: dense(batch_norm=False),
    "mlp_bn": lambda: dense(batch_norm=True),
    "cnn": lambda: convolutional(),
    "vit": lambda: make("vit_small_patch4", num_outputs=10, input_shape=SHAPE, dim=32, depth=2, heads=4),
    "residual": lambda: residual(),
    "unet": lambda: UNet(),
    "resnet20": lambda: make("resnet20", num_outputs=10, input_shape=SHAPE),
}
OBJECTIVES = ("bound", "probe", "mc_vi")
COLUMNS = {  # title: key of the record, digits
    "probs": ("probs", 4),
    "predict": ("predict", 3),
    "nll": ("nll", 3),
    **{name: (name, 3) for name in ("one draw", "draws", "E nll", "own one draw", "own draws", "own E nll")},
    "σ/rms": ("width", 3),
    "moved": ("moved", 2),
    "seconds": ("seconds", 0),
    "pass": ("pass", 1),
}
FORMS: dict[str, Record] = {
    "outputs": {"covariance": "outputs"},
    "diagonal": {"covariance": "diagonal"},
    "gains": {"covariance": "diagonal"},
    "full": {"covariance": "full"},
    "full, first order": {"covariance": "full", "activation": "first_order"},
}
NUM_EXAMPLES = 64  # of the variances; accuracies are of the whole test part


def dense(batch_norm: bool) -> nn.Module:
    layers: list[nn.Module] = [nn.Flatten()]
    for _ in range(2):
        layers += [nn.Linear(64, 64), *([nn.BatchNorm1d(64)] if batch_norm else []), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(64, 10))


def convolutional() -> nn.Module:
    """All positions of a channel share the noise of its weights, and pooling adds them up."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1)),
        *(nn.Flatten(), nn.Linear(16, 10)),
    )


def residual() -> nn.Module:
    """Two residual blocks, small enough for full covariance."""
    return nn.Sequential(
        *(nn.Conv2d(1, 8, 3, stride=2, padding=1), nn.BatchNorm2d(8), nn.ReLU()),
        *(BasicBlock(8, 8, 1, "projection"), BasicBlock(8, 16, 2, "projection")),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)),
    )


class UNet(nn.Module):
    """Segmentation: 3 classes of 64 pixels, more outputs than the sweep takes."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.deep, self.fine = (
            nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU())
            for i, o in ((1, 8), (8, 16), (16, 8))
        )
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2, stride=2), nn.Conv2d(8, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.down(x)
        deep = self.up(self.deep(F.avg_pool2d(x, 2)))
        return self.head(self.fine(torch.cat([x, deep], 1)))


def target_of(net: str, x: Tensor, y: Tensor) -> Tensor:
    """The digit; of a U-Net for every pixel whether it is dark, or bright and of an even or an odd digit."""
    return y if net != "unet" else (x[:, 0] > x.mean()) * (1 + y % 2)[:, None, None]


class Run:
    """Data and settings."""

    def __init__(self, a: argparse.Namespace) -> None:
        self.a, self.data = a, load("digits")
        self.test = next(iter(self._loader(self.data, "test", len(self.data.test))))

    def _loader(self, data: DataSet, part: str, batch: int, **options: Any) -> Loader:
        return Loader(
            getattr(data, part), batch, normalise=data.normalisation, device=self.a.device, **options
        )

    def train_loader(self, seed: int) -> Loader:
        return self._loader(self.data, "train", self.a.batch, shuffle=True, seed=seed)

    def model(self, net: str, objective: str, weight: float | None, seed: int) -> bf.BayesianModule:
        """A fresh network, with running statistics of the data where it has batch norm."""
        torch.manual_seed(seed)
        plain = NETS[net]().to(self.a.device).train()
        with torch.no_grad():
            for x, _ in self.train_loader(seed):
                plain(x)
        options: Record = {"prior": "fan_in", "kl_weight": 1.0 if weight is None else weight}
        vdp = partial(bf.DensityPropagation, covariance=self.a.covariance)
        methods = {
            "mc_vi": bf.MonteCarloVI,
            "probe": partial(vdp, logits="probe"),
            "bound": partial(vdp, logits="bound"),
        }
        method = methods.get(objective, vdp)(**options)
        x = self.test[0][:2]
        return bf.bayesify(plain, method, num_data=len(self.data.train), example=x)

    def train(self, model: bf.BayesianModule, net: str, seed: int) -> Record:
        optimizer, loader = model.optimizer(lr=self.a.lr), self.train_loader(seed)
        start, before, steps = time.perf_counter(), log_stds(model), 0
        model.train()
        for epoch in range(self.a.epochs):
            loader.set_epoch(epoch)
            for x, y in loader:
                optimizer.zero_grad(set_to_none=True)
                model.loss(x, target_of(net, x, y)).total.backward()
                optimizer.step()
                steps += 1
        moved = (log_stds(model) - before).abs().median().item() / (steps * self.a.lr)
        return {"seconds": time.perf_counter() - start, "moved": moved}

    @torch.no_grad()
    def measured(self, model: bf.BayesianModule, net: str) -> Record:
        """What the columns show of a model."""
        model.eval()
        x, y = self.test[0], target_of(net, *self.test)
        drawn = [model.draw().eval() for _ in range(self.a.networks)]
        predictive = model.predict(x, num_draws=self.a.networks)
        record: Record = {
            "predict": accuracy(predictive.probs, y),
            "nll": -predictive.log_prob(y).mean().item(),
            "width": bf.diagnostics.relative_width(model),
            **scores(torch.stack([one(x) for one in drawn]), y),
        }
        everything = next(iter(self._loader(self.data, "train", len(self.data.train))))[0]
        own = scores(torch.stack([with_statistics(one, everything)(x) for one in drawn]), y)
        record |= {f"own {name}": value for name, value in own.items()}
        if isinstance(model.method, bf.DensityPropagation):
            check = bf.diagnostics.moment_check(model, [(x, y)], self.a.draws, NUM_EXAMPLES)
            record |= {"ratio": check.ratio, "low": check.low, "high": check.high, "probs": check.probs_error}
            record["pass"] = self.cost(model)
        return record

    def in_form(self, model: bf.BayesianModule, net: str, form: str) -> bf.BayesianModule:
        """The posterior of a density-propagated model, read out otherwise."""
        method = dataclasses.replace(model.method, logits="bound", **FORMS[form])
        other = bf.bayesify(NETS[net]().to(self.a.device), method, num_data=model.num_data)
        other.load_state_dict(model.state_dict())
        return other.eval()

    def forms(self, model: bf.BayesianModule, net: str) -> list[Record]:
        """Every form that was asked for and knows the network's operations, beside the same draws."""
        found = []
        for form in self.a.forms:
            other = self.in_form(model, net, form)
            try:
                if form == "gains":
                    bf.moments.fit_gains(other, self.train_loader(0))
                check = bf.diagnostics.moment_check(other, [self.test[0]], self.a.draws, NUM_EXAMPLES)
            except NotImplementedError:  # full covariance has few rules
                continue
            record = {"ratio": check.ratio, "low": check.low, "high": check.high, "probs": check.probs_error}
            found.append({"form": form, **record, "width": check.width, "pass": self.cost(other)})
        return found

    def input_noise(self, model: bf.BayesianModule) -> Record:
        """Log ratios of the parts of the variance to drawn ones: geometric mean, 5 and 95 %."""
        x, std, plain = self.test[0][:NUM_EXAMPLES], self.a.input_noise, model.mean_net().eval()
        torch.manual_seed(0)
        drawn: dict[str, list[Tensor]] = {"weights": [], "inputs": [], "both": []}
        for _ in range(self.a.draws):
            one, noisy = model.draw().eval(), x + std * torch.randn_like(x)
            for name, net, value in (("weights", one, x), ("inputs", plain, noisy), ("both", one, noisy)):
                drawn[name].append(net(value))
        var = {name: torch.stack(values).var(0) for name, values in drawn.items()}
        weights, inputs = bf.moments.sources(model, bf.Moments(x, torch.full_like(x, std**2)))
        pairs = {
            "weights": weights / var["weights"],
            "inputs": inputs / var["inputs"],
            "inputs, added": inputs / (var["both"] - var["weights"]),
            "both": (weights + inputs) / var["both"],
        }
        return {name: spread(ratio) for name, ratio in pairs.items()} | {
            "share": (inputs / (weights + inputs)).median().item()
        }

    def cost(self, model: bf.BayesianModule) -> float:
        """Time of one pass ÷ that of the plain network."""
        x, plain = self.test[0][: self.a.batch], model.mean_net().eval()
        device = str(self.a.device)
        return measure(lambda: model(x), device, 0.5).seconds / measure(lambda: plain(x), device, 0.5).seconds


def spread(ratio: Tensor) -> Record:
    """Of ratios: the geometric mean, 5 and 95 %; without those to a difference of drawn variances below 0."""
    logs = ratio[ratio > 0].log()
    low, high = logs.quantile(torch.tensor([0.05, 0.95], device=logs.device)).exp().tolist()
    return {"ratio": logs.mean().exp().item(), "low": low, "high": high}


def log_stds(model: bf.BayesianModule) -> Tensor:
    with torch.no_grad():
        found = model.posterior.distributions(list(model.posterior.slots)).values()
        return torch.cat([q.variance.log().flatten() / 2 for q in found])


def with_statistics(net: nn.Module, x: Tensor) -> nn.Module:
    """`net` in eval mode with the statistics that its own batch norms have at `x`."""
    norms = [module for module in net.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        net(x)
    return net.eval()


def scores(logits: Tensor, y: Tensor) -> Record:
    """Of drawn networks, (draws, batch, classes, …)."""
    return {
        "one draw": sum(accuracy(each, y) for each in logits) / len(logits),
        "draws": accuracy(logits.softmax(2).mean(0), y),
        "E nll": F.cross_entropy(logits.flatten(0, 1), y.repeat(len(logits), *[1] * (y.dim() - 1))).item(),
    }


def accuracy(scores: Tensor, y: Tensor) -> float:
    return (scores.argmax(1) == y).double().mean().item()


def records(run: Run) -> list[Record]:
    """Train and measure all that was asked for; each record goes to --out as soon as it is there."""
    found = []
    a = run.a
    for net in a.nets:
        for seed in a.seeds:
            trained = [(objective, weight) for weight in a.kl_weights for objective in a.objectives]
            for objective, weight in [("fresh", None), *trained]:
                model = run.model(net, objective, weight, seed)
                training = {} if weight is None else run.train(model, net, seed)
                key = {"net": net, "objective": objective, "kl_weight": weight, "seed": seed}
                record = {**key, "epochs": a.epochs, **training, **run.measured(model, net)}
                if a.input_noise and isinstance(model.method, bf.DensityPropagation):
                    with torch.no_grad():
                        record["noise"] = run.input_noise(model)
                if a.forms and isinstance(model.method, bf.DensityPropagation):
                    record["forms"] = run.forms(model, net)
                print(json.dumps(record), flush=True)
                if a.out:
                    add_record(a.out, record)
                found.append(record)
    return found


def print_table(found: list[Record]) -> None:
    """A row for each network, objective and KL weight, over its seeds."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for record in found:
        groups.setdefault((record["net"], record["objective"], record["kl_weight"]), []).append(record)
    rows = [
        [
            f"{net}, {objective}",
            "-" if weight is None else f"{weight:g}",
            variance(same),
            *(cell(same, *column) for column in COLUMNS.values()),
        ]
        for (net, objective, weight), same in groups.items()
    ]
    counts = sorted({len(same) for same in groups.values()})
    epochs = sorted({record["epochs"] for record in found})
    table(f"digits; epochs {epochs}, seeds of a row {counts}", rows, ["", "KL weight", "variance", *COLUMNS])
    noisy = [record for record in found if "noise" in record]
    if noisy:
        print_noise(noisy)
    if any("forms" in record for record in found):
        print_forms([{**r, **form} for r in found for form in r.get("forms", [])])


def print_noise(found: list[Record]) -> None:
    """A row for each record."""
    names = ("weights", "inputs", "inputs, added", "both")
    rows = []
    for r in found:
        cells = [variance([r["noise"][name]]) for name in names]
        rows.append([f"{r['net']}, {r['objective']}", *cells, f"{r['noise']['share']:.2f}"])
    table("noise in the inputs: parts of the variance ÷ drawn ones", rows, ["", *names, "inputs' share"])


def print_forms(found: list[Record]) -> None:
    """A row for each network, objective, KL weight and form."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for r in found:
        weight = "-" if r["kl_weight"] is None else f"{r['kl_weight']:g}"
        groups.setdefault((f"{r['net']}, {r['objective']}, {r['form']}", weight), []).append(r)
    names = {name: COLUMNS[name] for name in ("probs", "σ/rms", "pass")}
    rows = [
        [*key, variance(same), *(cell(same, *column) for column in names.values())]
        for key, same in groups.items()
    ]
    table("the same posteriors in other forms", rows, ["", "KL weight", "variance", *names])


def variance(same: list[Record]) -> str:
    if "ratio" not in same[0]:
        return "-"
    ratio = math.exp(sum(math.log(r["ratio"]) for r in same) / len(same))
    low, high = (sum(r[name] for r in same) / len(same) for name in ("low", "high"))
    return f"{ratio:.3f} [{low:.2f}, {high:.2f}]"


def cell(same: list[Record], name: str, digits: int) -> str:
    if name not in same[0]:
        return "-"
    mean = statistics.mean([r[name] for r in same])
    error = f" ± {mean.error:.{digits}f}" if len(same) > 1 else ""
    return f"{mean.value:.{digits}f}{error}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nets", nargs="+", choices=list(NETS), default=list(NETS))
    parser.add_argument("--objectives", nargs="*", choices=OBJECTIVES, default=list(OBJECTIVES))
    parser.add_argument("--kl-weights", nargs="+", type=float, default=[1.0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--covariance", choices=("outputs", "diagonal", "full"), default="outputs")
    parser.add_argument("--forms", nargs="*", choices=list(FORMS), help="all of them, where none is named")
    parser.add_argument("--input-noise", type=float, metavar="STD", help="of the inputs")
    parser.add_argument("--draws", type=int, default=500, help="of the weights, for variances")
    parser.add_argument("--networks", type=int, default=50, help="drawn, for accuracies")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", help="a file that records are added to")
    parser.add_argument(
        "--table", nargs="+", metavar="FILE", help="print what these files hold; train nothing"
    )
    a = parser.parse_args()
    a.forms = list(FORMS) if a.forms == [] else a.forms
    if a.table:
        print_table([record for file in a.table for record in json.loads(Path(file).read_text())])
    else:
        print_table(records(Run(a)))


if __name__ == "__main__":
    main()
