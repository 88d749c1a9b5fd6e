"""A trained network becomes Bayesian: on its own classes, and on others.

A plain network learns the digits 0 to 4. `start="pretrained"` puts priors around its weights, and the recipe takes
small steps from there, a third of the epochs: first on the same classes, then on 60 images of 5 to 9, with a new
output, the first block as it is and the second one random.
"""

import copy

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, Split, load

digits = load("digits")
images = torch.cat([digits.train.inputs, digits.test.inputs])
labels = torch.cat([digits.train.targets, digits.test.targets])


def part(of: torch.Tensor, first: int, last: int) -> Split:
    chosen = Split(images[of], labels[of] % 5)
    return chosen.take(torch.arange(len(chosen))[first:last])


def make_net(seed: int) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2)),
        nn.Sequential(nn.Flatten(), nn.Linear(128, 5)),
    )


def batches(data: Split, shuffle: bool = False) -> Loader:
    return Loader(data, 20, shuffle=shuffle, seed=0, normalise=digits.normalisation)


old, held_out = part(labels < 5, 0, 600), part(labels < 5, 600, 900)
few, test = part(labels >= 5, 0, 60), part(labels >= 5, 300, 900)

trained = make_net(0)
bf.fit(bf.bayesify(trained, "point"), batches(old, shuffle=True), epochs=5, seed=0, progress=False)


def fine_tuned(method: bf.methods.Method, other_classes: bool) -> bf.BayesianModule:
    net = copy.deepcopy(trained)
    if other_classes:
        net[0].requires_grad_(False)
        net[2] = make_net(1)[2]
    model = bf.bayesify(net, method, start="pretrained")
    bf.fit(model, batches(few if other_classes else old, shuffle=True), seed=0, progress=False)
    return model


weights = bf.where.linear | bf.where.conv
methods = {
    **{"point": bf.Point(), "mc_vi": bf.MonteCarloVI(where=weights), "ivon": bf.IVON(where=weights)},
    **{"emp": bf.EnsemblePatching(), "atmc": bf.ThermostatMCMC()},
}
before = bf.evaluate(bf.bayesify(copy.deepcopy(trained), "point"), batches(held_out))
print(f"trained network: accuracy {before['accuracy']:.3f}, nll {before['nll']:.3f}")
print(f"{'':8}{'0 to 4: accuracy':>18}{'nll':>8}{'5 to 9: accuracy':>20}{'nll':>8}")
for name, method in methods.items():
    same, new = fine_tuned(method, False), fine_tuned(method, True)
    found = bf.evaluate(same, batches(held_out)), bf.evaluate(new, batches(test))
    print(name.ljust(8) + "".join(f"{r['accuracy']:>17.3f}{r['nll']:>10.3f}" for r in found))
print(new.summary())
