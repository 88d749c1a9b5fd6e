"""Density propagation (VDP++): mean and variance through every layer, so one pass tells how sure the network is.

A small network learns digits. Its weights are random, but nothing is drawn: every layer hands on a mean
and a variance. Noise in the image raises the predicted variance; half of the weights can be set to zero.
"""

import torch

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.nets import make
from bayesify.studies.compress import pruning_curve

data = load("digits")
torch.manual_seed(0)
net = make("mlp", num_outputs=10, input_shape=(1, 8, 8), hidden=(100,))
model = bf.bayesify(net, bf.DensityPropagation(kl_weight=0.1))

train = Loader(data.train, 64, shuffle=True, normalise=data.normalisation)
test = Loader(data.test, 360, normalise=data.normalisation)
bf.fit(model, train, epochs=30, lr=5e-3, seed=0, progress=False)

x, y = next(iter(test))
output = model.to(x.device)(x)  # bf.Moments: one forward pass, no draws (bf.fit may have taken it to a GPU)
print(f"logits {tuple(output.mean.shape)}, mean variance {output.var.mean():.2f}")
print(f"accuracy {bf.evaluate(model, test)['accuracy']:.3f}")

print("\nsignal-to-noise of the image   accuracy   mean std of the winner's probability")
for decibel in (20, 10, 0, -6):
    noise = torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    power = x.square().mean() / 10 ** (decibel / 10)
    p = model.predict(x + power.sqrt() * noise, num_draws=200)
    spread = p.std.gather(1, p.label[:, None]).mean()
    print(f"{decibel:>5} dB {(p.label == y).float().mean():>29.3f} {spread:>20.3f}")

print("\nshare of weights set to zero: accuracy")
for point in pruning_curve(model, lambda m: bf.evaluate(m, test)["accuracy"], (0.0, 0.3, 0.5, 0.7)):
    print(f"{point.share:>6.0%}: {point.value:.3f}")
