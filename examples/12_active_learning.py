"""Active learning: which digits should a person label next?

A network knows 40 labelled digits and looks at a pool of some 1,100 others. Every round it asks for 30 labels: those
whose label and weights have the most mutual information (BALD: what the draws disagree on), or random ones. The
learning curves are printed and drawn, active_learning.png.
"""

import torch
from matplotlib.figure import Figure

import bayesify as bf
from bayesify.data import Loader, Split, load
from bayesify.nets import make

START, MORE, ROUNDS, SEEDS = 40, 30, 5, 3
digits = load("digits")


def batches(split: Split, size: int = 500, shuffle: bool = False) -> Loader:
    return Loader(split, size, shuffle=shuffle, seed=0, normalise=digits.normalisation)


def trained(labelled: torch.Tensor, seed: int) -> bf.BayesianModule:
    torch.manual_seed(seed)
    net = make("mlp", num_outputs=10, input_shape=(1, 8, 8), hidden=(64,))
    model = bf.bayesify(net, bf.MCDropout(drop_prob=0.1))
    loader = batches(digits.train.take(labelled), size=40, shuffle=True)
    bf.fit(model, loader, epochs=50, lr=1e-2, seed=seed, progress=False)
    return model


def learning_curve(kind: str, seed: int) -> list[float]:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits.train), generator=generator)
    labelled, pool = order[:START], order[START:]
    curve = []
    for _ in range(ROUNDS):
        model = trained(labelled, seed)
        curve.append(bf.evaluate(model, batches(digits.test))["accuracy"])
        chosen = torch.arange(MORE)  # of a pool in random order
        if kind != "random":
            chosen = bf.acquisition(model, batches(digits.train.take(pool)), kind, k=MORE).indices
        labelled = torch.cat([labelled, pool[chosen]])  # here a person labels them
        pool = pool[~torch.isin(torch.arange(len(pool)), chosen)]
    return curve


labels = torch.arange(ROUNDS) * MORE + START
axes = Figure(figsize=(5, 3.5), layout="constrained").subplots()
print("labels   " + "".join(f"{int(n):8d}" for n in labels))
for kind, colour in (("bald", "C0"), ("random", "C1")):
    curves = torch.tensor([learning_curve(kind, seed) for seed in range(SEEDS)])
    mean, low, high = curves.mean(0), curves.amin(0), curves.amax(0)
    print(f"{kind:9}" + "".join(f"{a:8.3f}" for a in mean.tolist()))
    axes.plot(labels, mean, "o-", color=colour, label=kind)
    axes.fill_between(labels, low, high, color=colour, alpha=0.15, linewidth=0)
axes.set(xlabel="labels", ylabel="test accuracy", title=f"mean and range of {SEEDS} seeds")
axes.legend()
axes.figure.savefig("active_learning.png", dpi=120)
