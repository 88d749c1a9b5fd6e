"""A variance network: the mean of its weights predicts nothing, their variance predicts everything.

The dense layer of a small network has weights of mean zero. What it learns is how far each weight scatters. The mean
network guesses; one draw is good; an average over draws is better. Then: which weights matter, and a smaller file.
"""

from pathlib import Path

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.studies import attacks, compress

data = load("digits")
torch.manual_seed(0)
net = nn.Sequential(
    *(nn.Conv2d(1, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
    *(nn.Linear(288, 200, bias=False), nn.BatchNorm1d(200), nn.Softplus(), nn.Linear(200, 10)),
)
dense = bf.where.matching("^5")
model = bf.bayesify(net, bf.VarianceNetwork(parameterization="zero_mean", where=dense, abs_after=True))

train = Loader(data.train, 50, shuffle=True, normalise=data.normalisation)
test = Loader(data.test, 500, normalise=data.normalisation)
bf.fit(model, train, epochs=10, lr=3e-3, schedule="linear", seed=0, progress=False)

modes = bf.inference_modes(model, test, num_draws=30)
for mode, metrics in modes.items():
    print(f"{mode:13s} accuracy {metrics['accuracy']:.3f}   nll {metrics['nll']:.3f}")

x, y = next(iter(test))
plain = {"step": 0.05, "num_steps": 5, "bounds": None}
rows = attacks.attack_curve(model, x, y, num_draws=5, eval_draws=20, **plain)
print("attacked, errors after each step:", [round(row.success_rate, 2) for row in rows])

scores = bf.diagnostics.kappa(model, train, num_probes=2)
for point in compress.sparsity_curve(model, scores, test, num_draws=20):
    print(f"{point.sparsity:6.1%} of the weights zero: accuracy {point.accuracy:.3f}")
bf.save(model, "dense.safetensors")
threshold = scores["5.weight"].flatten().quantile(0.9).item()
compress.sparsify(model, scores, threshold)
bf.save(model, "sparse.safetensors")
sizes = [Path(name).stat().st_size for name in ("dense.safetensors", "sparse.safetensors")]
print(f"{sizes[0]:,} bytes, sparse {sizes[1]:,} bytes")
