"""What functions does a random network draw? Weights dropped to zero against weights chosen among components.

The picture of Chang et al., "Ensemble Model Patching", Figure 3 and appendix D.1: y = B + Σ W_h sign(b_h + w_h x) with
100 hidden units. A unit whose w_h or W_h is zero has no step in x, so dropping gives rough functions of few steps.
"""

import torch
from torch import nn

import bayesify as bf


class Sign(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sign()


def make_net() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(1, 100), Sign(), nn.Linear(100, 1))
    with torch.no_grad():
        for layer in (net[0], net[2]):
            layer.weight.normal_(0, 5**0.5)
            layer.bias.normal_(0, 20**0.5)
    return net


def make_model(assignment: str) -> bf.BayesianModule:
    method = bf.EnsemblePatching(5, assignment, drop_prob=0.5, where=bf.where.all)
    model = bf.bayesify(make_net(), method, "normal", num_data=1)
    with torch.no_grad():  # the other components are independent draws of the same law
        for name, others in model.posterior.components.named_parameters():
            others.normal_(0, (20 if name.endswith("bias") else 5) ** 0.5)
    return model


torch.manual_seed(0)
x = torch.linspace(-6, 6, 4001)[:, None]
functions, steps = {}, {}
for assignment in ("dropconnect", "layer", "element"):
    functions[assignment] = (
        make_model(assignment).predict(x, num_draws=200, keep_samples=True).samples[..., 0]
    )
    jumps = functions[assignment].diff(dim=1).abs() > 1e-4
    steps[assignment] = jumps.sum(1).float().mean().item()
    print(f"{assignment:>11}: {steps[assignment]:.0f} steps of a function on [-6, 6], mean of 200 draws")
print(f"components have {steps['element'] / steps['dropconnect']:.1f} times the steps")

try:
    import matplotlib.pyplot as plt
except ImportError:
    pass
else:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3), sharey=True)
    for axis, (assignment, draws) in zip(axes, functions.items(), strict=True):
        axis.plot(x, draws[:3].T)
        axis.set_title(assignment)
    figure.savefig("function_prior.png")
