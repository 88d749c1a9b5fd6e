"""What the likelihood trains: the chosen components, without bias, and learned mixing probabilities."""

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from component_cases import make
from torch import Tensor, nn

import bayesify as bf
from bayesify.posteriors.patched.choices import assign


def test_the_likelihood_trains_the_chosen_components_only() -> None:
    model = make(assignment="layer")
    seen = set()
    for seed in range(200):
        model.zero_grad()
        model(torch.ones(1, 3), generator=torch.Generator().manual_seed(seed)).sum().backward()
        z = model.posterior.mixing.draw_on_host(torch.Generator().manual_seed(seed))
        for layer, k in z.items():
            gradients = [model.net.get_parameter(f"{layer}.weight").grad]
            others = model.get_parameter(f"posterior.components.{layer}.weight").grad
            gradients += list(torch.zeros(2, 1) if others is None else others)
            assert [g is not None and bool(g.any()) for g in gradients] == [i == k for i in range(3)]
        seen.add(tuple(z.values()))
    assert len(seen) == 9


def test_an_element_trains_its_own_component_only() -> None:
    model = make(assignment="element")
    model(torch.ones(1, 3), generator=torch.Generator().manual_seed(0)).sum().backward()
    for name in model.posterior.patches:
        own = model.net.get_parameter(name).grad
        others = model.get_parameter(f"posterior.components.{name}").grad
        assert ((torch.cat([own[None], others]) != 0).sum(0) == 1).all(), name


@pytest.mark.parametrize("assignment", ["layer", "element"])
def test_gradients_are_unbiased(assignment: str) -> None:
    """Theorem 2 by enumeration, K = 2: the gradients of single passes, weighted with p(z), are the gradient of
    Σ_z p(z) nll(z)."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(1, 1, bias=assignment == "layer"), nn.Tanh(), nn.Linear(1, 2, bias=False))
    probs = (0.3, 0.7)
    model = bf.bayesify(
        net, bf.EnsemblePatching(2, assignment, mixing=probs, spread=1.0, where=bf.where.all), num_data=10
    )
    x, y = torch.randn(6, 1), torch.randint(2, (6,))
    parameters = list(model.parameters())
    by_outcome: dict[tuple[int, ...], list[Tensor]] = {}
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        nll = model.loss(x, y, generator=generator.manual_seed(seed)).nll
        gradients = torch.autograd.grad(nll, parameters, allow_unused=True)
        filled = [torch.zeros_like(p) if g is None else g for g, p in zip(gradients, parameters, strict=True)]
        chosen = assign(model.posterior, bf.posteriors.Call((), {}, generator.manual_seed(seed))).by_unit
        flat = [z if isinstance(z, int) else z.tolist() for z in chosen.values()]
        key = tuple(k for z in flat for k in (z if isinstance(z, list) else [z]))
        by_outcome[key] = filled
    count = len(next(iter(by_outcome)))
    assert len(by_outcome) == 2**count
    weight = {key: torch.tensor([probs[k] for k in key]).prod() for key in by_outcome}
    estimate = [sum(weight[k] * g[i] for k, g in by_outcome.items()) for i in range(len(parameters))]
    expected = torch.autograd.grad(_expected_nll(model, x, y, probs, assignment), parameters)
    for a, b in zip(estimate, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def _expected_nll(model: Any, x: Tensor, y: Tensor, probs: tuple[float, ...], assignment: str) -> Tensor:
    """Σ_z p(z) nll(z), written out with functional_call."""
    q = model.posterior
    shapes = [(n, i) for n, p in q.patches.items() for i in range(model.net.get_parameter(n).numel())]
    units = sorted({q.patches[n].unit for n, _ in shapes})
    total = torch.zeros(())
    count = len(units) if assignment == "layer" else len(shapes)
    for z in itertools.product(range(2), repeat=count):
        weights = {}
        for name, patch in q.patches.items():
            stack = torch.stack(q.centroids(name, q.held([name]))).flatten(1)  # (K, entries)
            if assignment == "layer":
                picked = stack[z[units.index(patch.unit)]]
            else:
                picked = torch.stack([stack[z[shapes.index((name, i))], i] for i in range(stack.shape[1])])
            weights[name] = picked.view(patch.shape)
        nll = F.cross_entropy(torch.func.functional_call(model.net, weights, (x,)), y)
        total = total + torch.tensor([probs[k] for k in z]).prod() * nll
    return total


def test_learned_mixing_moves_towards_the_better_component() -> None:
    """Component 0 answers right, component 1 wrong: its probability rises; the weights stay."""
    net = nn.Linear(1, 2, bias=False)
    method = bf.EnsemblePatching(2, "layer", mixing="learned", where=bf.where.all, prior_precision=1e-6)
    model = bf.bayesify(net, method, num_data=1000)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[4.0], [-4.0]]))
        model.get_parameter("posterior.components.weight").copy_(-net.weight[None])
    logits = [p for name, p in model.named_parameters() if name.endswith("logits")]
    assert [tuple(p.shape) for p in logits] == [(2,)]
    optimizer = torch.optim.Adam(logits, lr=0.05)
    x, y = torch.ones(8, 1), torch.zeros(8, dtype=torch.long)
    for _ in range(200):
        optimizer.zero_grad()
        model.loss(x, y).total.backward()
        optimizer.step()
    assert logits[0].softmax(0)[0] > 0.9
    expected = logits[0].softmax(0)[0] * net.weight + logits[0].softmax(0)[1] * -net.weight
    torch.testing.assert_close(model.fold().weight, expected)
