"""Parameters of ensemble-based Bayesian networks: Tables 1 and 3 of Chang et al., counted on real networks.

    python benchmarks/patching_counts.py

The paper's MLP column has hidden biases and leaves the first copy of the batch-norm parameters out; its count is shown
beside that of a real network (batch norm in place of the hidden biases).

Table 1 has methods that are not in the library. Probabilistic back-propagation keeps a mean and a variance of every
weight, as density propagation does, on which it is counted. MNFG is the paper's own figure, 300 numbers for a weight.
"""

import bayesify as bf
from bayesify.nets import make
from timing import table

K = 5
NETS = {
    "resnet18": {"num_outputs": 1000, "input_shape": (3, 224, 224)},
    "pyramidnet110": {"num_outputs": 100, "input_shape": (3, 32, 32)},
    "mlp": {
        "num_outputs": 100,
        "input_shape": (100,),
        "hidden": [100] * 99,
        "batch_norm": True,
        "output_bias": False,
    },
}
METHODS = {
    "EMP": "layer",
    "ECMP": "element",
    "Dropout": "dropout",
    "DropConnect": "dropconnect",
    "Explicit ensemble": "member",
}
PAPER = {  # Table 3
    "resnet18": dict(zip(METHODS, (13_779_912, 13_779_912, 11_689_512, 11_689_512, 58_447_560), strict=True)),
    "pyramidnet110": dict(
        zip(METHODS, (28_825_299, 28_825_299, 28_511_307, 28_511_307, 142_556_535), strict=True)
    ),
    "mlp": dict(zip(METHODS, (1_129_100, 1_129_100, 1_009_900, 1_009_900, 5_049_500), strict=True)),
}


TABLE_1 = {  # resnet18 and pyramidnet110: millions of parameters, overhead in %
    "Mean-field Gaussian": (("23.4", "100"), ("57.0", "100")),
    "PBP": (("23.4", "100"), ("57.0", "100")),
    "MNFG": (("3,510", "29900"), ("8,550", "29900")),
    "Dropout": (("11.7", "0.00"), ("28.5", "0.00")),
    "Ensemble patching": (("13.8", "17.9"), ("28.8", "1.10")),
}
COUNTED_ON = {
    "Mean-field Gaussian": bf.MonteCarloVI(where=bf.where.all),
    "PBP": bf.DensityPropagation(covariance="diagonal", where=bf.where.all),
    "Dropout": bf.EnsemblePatching(K, "dropout"),
    "Ensemble patching": bf.EnsemblePatching(K),
}
MNFG = 300  # numbers for every weight


def three_digits(number: float) -> str:
    """As the paper prints: 23.4, 3,510, 0.00."""
    rounded = float(f"{number:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:#.3g}" if rounded else "0.00"


def table_1() -> None:
    rows = []
    for method, printed in TABLE_1.items():
        row = [method]
        for name, (millions, percent) in zip(("resnet18", "pyramidnet110"), printed, strict=True):
            net = make(name, **NETS[name])
            base = sum(p.numel() for p in net.parameters())
            if method == "MNFG":
                total = MNFG * base
            else:
                total = bf.bayesify(net, COUNTED_ON[method], num_data=1).summary().num_total
            counted = three_digits(total / 1e6), three_digits(100 * (total / base - 1)).replace(",", "")
            same = "equal" if counted == (millions, percent) else "DIFFERS"
            row += [f"{millions}M [{percent} %]", f"{total:,} [{counted[1]} %]", same]
        rows.append(row)
    header = ["", "resnet18, paper", "counted", "", "pyramidnet110, paper", "counted", ""]
    table("Table 1", rows, header)


def paper_mlp(method: str, layers: int = 100, units: int = 100) -> int:
    """Base L·H² + (L−1)·H; patched + (K−1)(2(L−1)H + H²); explicit × K."""
    base = layers * units**2 + (layers - 1) * units
    if method == "Explicit ensemble":
        return K * base
    patched = (K - 1) * (2 * (layers - 1) * units + units**2)
    return base + (patched if method in ("EMP", "ECMP") else 0)


def main() -> None:
    for name, options in NETS.items():
        rows = []
        for method, assignment in METHODS.items():
            net = make(name, **options)
            summary = bf.bayesify(net, bf.EnsemblePatching(K, assignment), num_data=1).summary()
            counted = paper_mlp(method) if name == "mlp" else summary.num_total
            size = next(note for note in summary.notes if "ensemble size" in note).split("size ")[1]
            paper = PAPER[name][method]
            same = "equal" if counted == paper else "DIFFERS"
            overhead = f"{summary.overhead:.2f} %"
            rows.append(
                [method, f"{paper:,}", f"{counted:,}", same, f"{summary.num_total:,}", overhead, size]
            )
        header = ["", "paper", "by its rule", "", "real network", "overhead", "ensemble size"]
        table(f"{name}: {summary.num_parameters:,} parameters", rows, header)
    rows = []
    for title, where in (
        ("norm", bf.where.norm),
        ("output", bf.where.output),
        ("both", bf.where.norm | bf.where.output),
    ):
        model = bf.bayesify(
            make("resnet18", **NETS["resnet18"]), bf.EnsemblePatching(K, where=where), num_data=1
        )
        rows.append([title, f"{model.summary().num_total:,}", f"{model.summary().overhead:.3f} %"])
    table("resnet18, EMP by patched layers", rows, ["", "parameters", "overhead"])
    table_1()


if __name__ == "__main__":
    main()
