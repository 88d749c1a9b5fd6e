"""Your own PyTorch loop. One line makes the network Bayesian; the rest is the loop you have."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import load

torch.manual_seed(0)
digits = load("digits")  # 8×8 images of ten digits, shipped with scikit-learn
x, y = digits.train.inputs, digits.train.targets
x_test, y_test = digits.test.inputs, digits.test.targets
loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)

net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
prior = bf.prior("normal", std=0.3)
model = bf.bayesify(net, bf.MonteCarloVI(prior=prior), num_data=len(x))  # the line
print(model.summary())

optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)  # or model.optimizer(lr=3e-3)
for epoch in range(1, 31):
    for inputs, labels in loader:
        optimizer.zero_grad()
        loss = model.loss(inputs, labels)  # .nll per example, .kl of all weights, .total of both
        loss.total.backward()
        optimizer.step()
    if epoch % 10 == 0:
        print(f"epoch {epoch}: nll {loss.nll:.3f}, kl {loss.kl:.0f}")

prediction = model.predict(x_test, num_draws=50)  # eval mode, 50 draws of the weights averaged
right = prediction.label == y_test
print(f"accuracy {right.float().mean():.3f}")
print(f"mean entropy where right {prediction.entropy[right].mean():.3f} nats")
print(f"mean entropy where wrong {prediction.entropy[~right].mean():.3f} nats")

noise = torch.rand(100, 1, 8, 8)  # nothing like a digit
print(f"mean entropy on noise    {model.predict(noise, num_draws=50).entropy.mean():.3f} nats")
