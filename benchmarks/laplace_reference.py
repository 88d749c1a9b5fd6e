"""Laplace's approximation beside laplace-torch, and what it costs.

    python benchmarks/laplace_reference.py --write FILE     needs laplace-torch 0.3 and scipy
    python benchmarks/laplace_reference.py --show curve
    python benchmarks/laplace_reference.py --show cost
    python benchmarks/laplace_reference.py --show defaults
    python benchmarks/laplace_reference.py --show draws

--write trains two networks, on laplace-torch's own curve (150 points, 50 tanh units) and on three classes in the
plane, and stores their weights, the data and laplace-torch's figures: at given prior precision and noise, and at the
optimum of the marginal likelihood. Tests compare with them (tests/posteriors/gaussian/laplace_torch.json).

--show curve: std far from the data (x < −3, x > 11) divided by the std inside (0 to 8), of the target and of the mean
alone, for Laplace's structures, and for mean-field VI and IVON by draws and linearised. cost: seconds of one fit by
those of an epoch of plain training, of small convolutional networks. defaults: accuracy, NLL, ECE, and AUROC of the
entropy on unknown inputs, of every structure on the digits. draws: on the digits, how far probabilities of the
linearised network are from those of 20,000 draws of its outputs: by closed forms (probit: f / √(1 + π/8 var); mean
field: Σ_j exp of the same of differences, with their variance), by predictions, and by frozen predictors.
"""

import argparse
import copy
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

STRUCTURES = {"full": "full", "kron": "kron", "diag": "diag", "last_layer": "full"}


def curve(num_data: int = 150, seed: int = 711) -> tuple[Tensor, Tensor]:
    """laplace-torch's example of a regression: y = sin x + 0.3 ε, x uniform in 0..8."""
    generator = torch.Generator().manual_seed(seed)
    x = 8 * torch.rand(num_data, 1, generator=generator, dtype=torch.float64)
    return x, x.sin() + 0.3 * torch.randn(num_data, 1, generator=generator, dtype=torch.float64)


def three_classes(num_data: int = 120, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Three clouds in the plane that touch."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(num_data) % 3
    angle = 2 * math.pi * y / 3
    centre = torch.stack([angle.cos(), angle.sin()], 1).double()
    return 1.5 * centre + torch.randn(num_data, 2, generator=generator, dtype=torch.float64), y


def trained(net: nn.Module, x: Tensor, y: Tensor, loss: nn.Module, steps: int = 1000) -> nn.Module:
    """By Adam, all data in every step."""
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(net(x), y).backward()
        optimizer.step()
    return net


def networks() -> dict[str, tuple[nn.Module, Tensor, Tensor, Tensor]]:
    """Name -> trained network, training data, test inputs."""
    torch.manual_seed(711)
    x, y = curve()
    one = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1)).double()
    u, c = three_classes()
    many = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)).double()
    grid = torch.linspace(-4, 4, 5, dtype=torch.float64)
    return {
        "regression": (
            trained(one, x, y, nn.MSELoss()),
            x,
            y,
            torch.linspace(-5, 13, 19, dtype=torch.float64)[:, None],
        ),
        "classification": (
            trained(many, u, c, nn.CrossEntropyLoss(), 150),
            u,
            c,
            torch.cartesian_prod(grid, grid),
        ),
    }


def references() -> dict[str, Any]:
    """laplace-torch's figures, with all that it takes to repeat them."""
    from laplace import Laplace  # of laplace-torch, which only this function needs

    found: dict[str, Any] = {}
    for task, (net, x, y, x_test) in networks().items():
        weights = {name: value.tolist() for name, value in net.state_dict().items()}
        entry = {
            "weights": weights,
            "x": x.tolist(),
            "y": y.tolist(),
            "x_test": x_test.tolist(),
            "structures": {},
        }
        for structure, hessian in STRUCTURES.items():
            subset = "last_layer" if structure == "last_layer" else "all"
            given = {"sigma_noise": 0.3} if task == "regression" else {}
            la = Laplace(copy.deepcopy(net), task, subset, hessian, prior_precision=2.0, **given)
            la.fit(DataLoader(TensorDataset(x, y), 50))
            mean, cov = la._glm_predictive_distribution(x_test)
            figures = {"cov": cov.tolist(), "log_marginal_likelihood": float(la.log_marginal_likelihood())}
            figures |= optimum(la, task)
            entry["structures"][structure] = figures
        found[task] = entry
    return found


def optimum(la: Any, task: str) -> dict[str, float]:
    """Prior precision, and noise, at the largest marginal likelihood, by Nelder and Mead's simplex: gradients by the
    noise lack the determinant where the structure is "kron" (laplace-torch 0.3)."""
    from scipy.optimize import minimize

    def negative(logs: Any) -> float:
        delta, *std = (torch.tensor([math.exp(v)], dtype=torch.float64) for v in logs)
        return -float(la.log_marginal_likelihood(delta, **({"sigma_noise": std[0]} if std else {})))

    start = [0.0, -1.0] if task == "regression" else [0.0]
    best = minimize(
        negative, start, method="Nelder-Mead", options={"xatol": 1e-8, "fatol": 1e-10, "maxiter": 2000}
    )
    noise = {"best_noise": math.exp(best.x[1])} if task == "regression" else {}
    return {"best_prior_precision": math.exp(best.x[0]), "best_log_marginal_likelihood": -best.fun, **noise}


def show_curve() -> None:
    """std far from the data by std inside."""
    import bayesify as bf

    torch.manual_seed(711)
    x, y = (t.float() for t in curve())
    net = trained(nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1)), x, y, nn.MSELoss())
    loader = DataLoader(TensorDataset(x, y), 150)
    grid = torch.linspace(-5, 13, 181)[:, None]
    inside, far = (grid > 0) & (grid < 8), (grid < -3) | (grid > 11)

    def line(label: str, model: Any, **options: Any) -> None:
        seen = model.predict(grid, 1000, generator=torch.Generator().manual_seed(0), **options)
        stds = (seen.std, seen.epistemic.sqrt())
        ratios = [float(std[far].mean() / std[inside].mean()) for std in stds]
        print(
            f"{label:34} {ratios[0]:8.2f} {ratios[1]:8.2f}   std inside {float(seen.std[inside].mean()):.3f}"
        )

    print(f"{'std far ÷ inside':34} {'target':>8} {'mean':>8}")
    for structure in (None, "full", "kron", "diag", "last_layer"):
        for per_layer in (False, True)[: 1 if structure in (None, "full", "last_layer") else 2]:
            model = bf.bayesify(copy.deepcopy(net), bf.Laplace(structure, per_layer=per_layer), "normal")
            bf.fit(model, loader, progress=False)
            line(f"laplace {structure or 'default'}{', per layer' * per_layer}", model)
    for name in ("mc_vi", "ivon"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
        model = bf.bayesify(net, name, bf.likelihood("normal", std=0.3), num_data=150)
        bf.fit(model, DataLoader(TensorDataset(x, y), 50, shuffle=True), progress=False)
        line(f"{name}, draws", model)
        line(f"{name}, linearised", model, mode="linearised")


def show_cost() -> None:
    """One fit by one epoch of plain training."""
    import bayesify as bf

    torch.manual_seed(0)
    x, y = torch.randn(1024, 1, 28, 28), torch.randint(0, 10, (1024,))
    loader = DataLoader(TensorDataset(x, y), 128, shuffle=True)
    for name in ("lenet", "resnet20"):
        net = bf.nets.make(name, num_outputs=10, input_shape=(1, 28, 28))
        plain = bf.bayesify(copy.deepcopy(net), "point")
        bf.fit(plain, loader, epochs=1, progress=False)
        epoch = seconds(lambda m=plain: bf.fit(m, loader, epochs=1, progress=False))
        weights = sum(p.numel() for p in net.parameters())
        print(f"{name}: {weights:,} weights, an epoch takes {epoch:.2f} s")
        for structure in ("kron", "last_layer"):
            model = bf.bayesify(copy.deepcopy(net), bf.Laplace(structure), example=x[:2])
            fit = seconds(lambda m=model: bf.fit(m, loader, progress=False))
            predict = seconds(lambda m=model: m.predict(x[:128]))
            print(
                f"  {structure:12} fit {fit:6.2f} s = {fit / epoch:5.2f} epochs; 128 predictions {predict:.2f} s"
            )


def seconds(function: Any) -> float:
    """Of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def show_defaults() -> None:
    """Every structure on the digits, a quarter of whose test part is for validation."""
    import bayesify as bf

    rows: dict[str, list[dict[str, float]]] = {}
    for seed in range(3):
        torch.manual_seed(seed)
        ds = bf.data.load("digits")
        train = bf.data.Loader(ds.train, 64, shuffle=True, seed=seed, normalise=ds.normalisation)
        cut, places = len(ds.test) // 4, torch.arange(len(ds.test))
        val, test = (
            bf.data.Loader(ds.test.take(own), 256, normalise=ds.normalisation)
            for own in (places[:cut], places[cut:])
        )
        plain = bf.bayesify(bf.nets.make("mlp", num_outputs=10, input_shape=ds.input_shape), "point")
        bf.fit(plain, train, progress=False)
        others = [torch.rand(256, *ds.input_shape) * 4 - 2]
        rows.setdefault("point", []).append(bf.evaluate(plain, test, ood=others))
        for structure in ("kron", "diag", "last_layer"):
            for precision in ("marglik", "validation"):
                method = bf.Laplace(structure, prior_precision=precision)
                model = bf.bayesify(copy.deepcopy(plain.net), method)
                bf.fit(model, train, val, progress=False)
                found = bf.evaluate(model, test, 100, ood=others)
                rows.setdefault(f"{structure}, {precision}", []).append(found)
    keys = ("accuracy", "nll", "ece", "auroc")
    print(f"{'digits, mlp':24}" + "".join(f"{key:>10}" for key in keys))
    for label, each in rows.items():
        print(f"{label:24}" + "".join(f"{sum(e[k] for e in each) / len(each):10.4f}" for k in keys))


def show_draws() -> None:
    """Largest difference of a probability, and the mean over images of an image's largest."""
    import bayesify as bf
    from bayesify.passes.jacobian import flat
    from bayesify.predict.linearised import output_law
    from bayesify.weights import as_call

    ds = bf.data.load("digits")
    train = bf.data.Loader(ds.train, 128, shuffle=True, seed=0, normalise=ds.normalisation)
    x, _ = next(iter(bf.data.Loader(ds.test, 400, normalise=ds.normalisation)))
    torch.manual_seed(0)
    plain = bf.bayesify(nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10)), "point")
    bf.fit(plain, train, epochs=20, progress=False)
    for precision in (None, "marglik", 1.0):
        model = bf.bayesify(plain.mean_net(), bf.Laplace("kron", prior_precision=precision))
        bf.fit(model, train, progress=False)
        law = model.posterior.linear_law(model.net)
        found = output_law(model.net, law, as_call(x), model.pick, flat(model.net(x).detach()))
        f, cov, var = found.mean.double(), found.cov.double(), found.var.double()
        root = torch.linalg.cholesky(cov + 1e-6 * torch.eye(10))
        generator = torch.Generator().manual_seed(0)
        noise = (torch.randn(1000, *f.shape, generator=generator).double() for _ in range(20))
        exact = sum((f + torch.einsum("bij,sbj->sbi", root, z)).softmax(-1).mean(0) for z in noise) / 20
        between = var[:, :, None] + var[:, None] - 2 * cov  # of f_i − f_k
        margins = (f[:, None] - f[:, :, None]) / (1 + math.pi / 8 * between).sqrt()
        fields = 1 / margins.exp().sum(-1)
        rows = {
            "the network itself": f.softmax(-1),
            "probit": (f / (1 + math.pi / 8 * var).sqrt()).softmax(-1),
            "mean field": fields / fields.sum(-1, keepdim=True),
            "predict": model.predict(x).probs,
            **{f"frozen, {n} draws": model.freeze(n, generator).predict(x).probs for n in (20, 100)},
        }
        print(f"\nprior precision {precision}, std of the outputs up to {float(var.max().sqrt()):.2f}")
        for label, probs in rows.items():
            apart = (probs - exact).abs().amax(1)
            print(f"{label:24}{float(apart.max()):8.4f}{float(apart.mean()):8.4f}")


SHOWN = {"curve": show_curve, "cost": show_cost, "defaults": show_defaults, "draws": show_draws}


def main() -> None:
    """Read the options and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", type=Path, help="where laplace-torch's figures go")
    parser.add_argument("--show", choices=SHOWN)
    options = parser.parse_args()
    if options.write is not None:
        options.write.write_text(json.dumps(references()) + "\n", encoding="utf-8")
    if options.show is not None:
        SHOWN[options.show]()


if __name__ == "__main__":
    main()
