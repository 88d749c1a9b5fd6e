"""Two kinds of uncertainty: noise in the data (aleatoric) and what the model does not know (epistemic).

A curve was measured at inputs from −4 to −1 and from 1.5 to 4, with nothing in between. The network
predicts a mean and a noise level for every input; the draws disagree where there were no data.
"""

import torch

import bayesify as bf
from bayesify.data import Loader, load
from bayesify.nets import make

data = load("regression_gap", num_train=150)
torch.manual_seed(0)
net = make(
    "mlp", num_outputs=2, input_shape=(1,), hidden=(50, 50), activation="tanh"
)  # mean and log-variance
method = bf.DeepEnsemble(bf.MonteCarloVI(prior=bf.prior("normal", std=1.0), kl_weight=0.05), num_members=5)
model = bf.bayesify(net, method, likelihood="heteroscedastic")

loader = Loader(data.train, 150, shuffle=True, normalise=data.normalisation)
bf.fit(model, loader, epochs=800, lr=1e-2, schedule="cosine", seed=0, progress=False)

x = torch.tensor([-3.5, -2.5, -1.5, -0.5, 0.25, 1.0, 2.0, 3.0, 3.8])[:, None]
units = data.normalisation
p = model.predict(units.inputs(x), num_draws=100)
mean = units.original_mean(p.mean)
noise_std = units.original_std(p.aleatoric.sqrt())
epistemic_std = units.original_std(p.epistemic.sqrt())
truth = torch.sin(1.5 * x) + x / 4

print("    x   truth    mean   noise std   epistemic std")
for row in torch.cat([x, truth, mean, noise_std, epistemic_std], dim=1).tolist():
    gap = "   <- no data here" if -1 < row[0] < 1.5 else ""
    print("{:5.2f}  {:6.2f}  {:6.2f}   {:9.2f}   {:13.2f}".format(*row) + gap)
inside = (x > -1) & (x < 1.5)
print(
    f"epistemic std, in the gap over beside it: {epistemic_std[inside].mean() / epistemic_std[~inside].mean():.1f}"
)
