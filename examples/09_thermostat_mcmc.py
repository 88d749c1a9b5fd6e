"""Posterior draws by stochastic-gradient MCMC: ATMC on the digits, with a verdict on the sampling.

The optimiser is a sampler, and the posterior a chain of stored draws. `bf.fit` keeps them by itself; the second
part does the same in a loop of one's own.
"""

import importlib.util

import torch
from torch import nn

import bayesify as bf
from bayesify.data import Loader, load

data = load("digits")
train = Loader(data.train, 128, shuffle=True, normalise=data.normalisation)
test = Loader(data.test, 256, normalise=data.normalisation)
prior = bf.prior("fan_in", gain=1.5, bias_std=0.3)  # N(0, 1.5² / fan-in) over weights, N(0, 0.3²) over biases


def make_net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 50), nn.Tanh(), nn.Linear(50, 10))


# 1. bf.fit: draws over the second half of the run, in runs/atmc/draws; started again, it goes on bit for bit
model = bf.bayesify(make_net(0), bf.ThermostatMCMC(prior=prior, num_kept=20, temperature=1.0))
bf.fit(model, train, epochs=240, folder="runs/atmc", seed=0, progress=False)
for num_draws in (1, 20):
    numbers = bf.evaluate(model, test, num_draws=num_draws)
    print(f"{num_draws} of 20 draws: accuracy {numbers['accuracy']:.3f}, nll {numbers['nll']:.3f}")

# 2. a loop of one's own: every step of the sampler moves the chain, the monitor says whether it is the posterior's
method = bf.ThermostatMCMC(prior=prior, burn_in=1440, every=72, temperature=1.0)
loop = bf.bayesify(make_net(1), method, num_data=len(data.train))
sampler = loop.optimizer(seed=1)
for epoch in range(240):
    if epoch == 120:
        monitor = bf.diagnostics.Monitor(sampler, loop)
    train.set_epoch(epoch)
    for x, y in train:
        sampler.zero_grad()
        loop.loss(x, y).total.backward()
        sampler.step()  # a draw is kept after step 1512, 1584, …; loop.collect() would keep one now
print(monitor)

# 3. two chains that started apart: do they agree on what the network says?
x = next(iter(test))[0][:50]
values = torch.cat([bf.diagnostics.function_values(chain, x) for chain in (model, loop)])
print(f"R-hat of the outputs: {bf.diagnostics.rhat(values).median():.2f} (median)")

# 4. both as one posterior, in one file
loop.posterior.add_folder("runs/atmc/draws")
bf.save(loop, "both.safetensors")
both = bf.load("both.safetensors", make_net(2))
print(
    f"both chains: {both.posterior.num_draws} draws, nll {bf.evaluate(both, test, num_draws=40)['nll']:.3f}"
)

# 5. the chains in arviz (pip install "arviz<1"): traces and a forest of weights and of what is said of one digit
if importlib.util.find_spec("arviz"):
    import arviz

    draws = bf.diagnostics.to_arviz(both, test, entries=1, num_examples=1)
    layout = {"backend_kwargs": {"constrained_layout": True}}
    arviz.plot_trace(draws, ["1.weight", "prediction"], **layout)[0, 0].figure.savefig("trace.png")
    arviz.plot_forest(draws, combined=True, r_hat=True, **layout)[0].figure.savefig("forest.png")
