"""Ensemble model patching: 5 components of each norm layer and of the output, chosen anew in every forward.

A network with batch norm becomes an implicit ensemble for a few per cent more parameters. The more draws a prediction
averages, the better calibrated it is; afterwards single members or their average are plain networks again.
"""

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, load

torch.manual_seed(0)
data = load("digits")
train = Loader(data.train, batch_size=64, normalise=data.normalisation)
test = Loader(data.test, batch_size=512, normalise=data.normalisation, shuffle=False)


def make_net() -> nn.Module:
    return nn.Sequential(
        nn.Flatten(),
        *(nn.Linear(64, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU()),
        *(nn.Linear(128, 128, bias=False), nn.BatchNorm1d(128), nn.ReLU()),
        nn.Linear(128, 10),
    )


for assignment in ("layer", "element"):
    method = bf.EnsemblePatching(
        num_components=5, assignment=assignment, where=bf.where.norm | bf.where.output
    )
    model = bf.bayesify(make_net(), method)
    summary = model.summary()
    print(f"{assignment}: {summary.num_total:,} parameters (+{summary.overhead:.1f} %), {summary.notes[-1]}")
    bf.fit(model, train, epochs=8, lr=3e-3, progress=False)
    for num_draws in (1, 20):
        result = bf.evaluate(model, test, num_draws=num_draws)
        print(f"  {num_draws:>2} draws: accuracy {result['accuracy']:.3f}, nll {result['nll']:.3f}")

member = model.member(2)  # one centroid everywhere: a plain network, to export or to fine-tune
mixed = model.member({"2": 4, "7": 1})  # or another one for each patched layer
folded = model.fold()  # the average of the components
x, y = next(iter(test))
for name, net in (("member 2", member), ("mixed", mixed), ("folded", folded)):
    accuracy = (net.to(x.device).eval()(x).argmax(1) == y).float().mean()
    print(f"{name}: {type(net).__name__}, accuracy {accuracy:.3f}")
