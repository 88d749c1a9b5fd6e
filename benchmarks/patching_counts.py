"""Parameters of ensemble-based Bayesian networks: Tables 1 and 3 of Chang et al., counted on real networks.

    python benchmarks/patching_counts.py

The paper's MLP column has hidden biases and leaves the first copy of the batch-norm parameters out; its count is shown
beside that of a real network (batch norm in place of the hidden biases).
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


if __name__ == "__main__":
    main()
