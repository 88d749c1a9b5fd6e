"""The law of the assignments, and what they do to the weights: paper 2, eq. 1, 4, 5 and Table 2."""

import itertools
from collections import Counter
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import Tensor, nn

import bayesify as bf
from bayesify.posteriors.component_weights import Assigned, assign, weights_for

FAILURE_RATE = 1e-6


def make(net: nn.Module | None = None, **options: Any) -> bf.BayesianModule:
    options = {"where": bf.where.all, "num_components": 3, **options}
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)) if net is None else net
    model = bf.bayesify(net, bf.EnsemblePatching(**options), num_data=10)
    with torch.no_grad():  # component k of every tensor is k + 1 everywhere: a weight shows its assignment
        for name in model.posterior.patches:
            model.net.get_parameter(name).fill_(1.0)
            if not model.posterior.assignment.zero:
                for k, other in enumerate(model.get_parameter(f"posterior.components.{name}")):
                    other.fill_(k + 2.0)
    return model


def drawn(model: bf.BayesianModule, n: int, seed: int = 0) -> dict[str, Tensor]:
    """n draws of every weight as assignments 0 … K − 1."""
    weights = model.posterior.draw(0, n, torch.Generator().manual_seed(seed))
    return {name: (w.detach() - 1).round().long() for name, w in weights.items()}


def assert_law(z: Tensor, probs: list[float]) -> None:
    """Pearson's chi-square of the counts against their multinomial law."""
    counts = torch.bincount(z.flatten(), minlength=len(probs)).double()
    expected = torch.tensor(probs, dtype=torch.float64) * z.numel()
    statistic = ((counts - expected).square() / expected).sum().item()
    assert statistic < stats.chi2.isf(FAILURE_RATE, len(probs) - 1), counts


@pytest.mark.parametrize("probs", [[1 / 3, 1 / 3, 1 / 3], [0.2, 0.7, 0.1]])
@pytest.mark.parametrize("assignment", ["layer", "element"])
def test_assignments_have_their_probabilities(assignment: str, probs: list[float]) -> None:
    """6000 draws of each weight."""
    model = make(assignment=assignment, mixing=probs)
    z = drawn(model, 6000)
    for name in ("0.weight", "0.bias", "1.weight"):
        assert_law(z[name].reshape(6000, -1)[:, 0], probs)
    passes: Counter[int] = Counter()
    generator = torch.Generator().manual_seed(1)
    for _ in range(3000):  # the eager pass draws on the host, the others on the device
        chosen = assign(model.posterior, bf.posteriors.Call((), {}, generator)).by_unit[
            "0" if assignment == "layer" else "0.bias"
        ]
        passes[chosen if isinstance(chosen, int) else int(chosen[0])] += 1
    assert_law(torch.tensor(list(passes.elements())), probs)


def test_a_layer_is_one_component_and_layers_are_independent() -> None:
    """EMP, 8000 draws: weight and bias agree always, the pair of two layers has the product law."""
    z = drawn(make(assignment="layer"), 8000)
    for layer in ("0", "1"):
        both = torch.cat([z[f"{layer}.weight"].flatten(1), z[f"{layer}.bias"]], 1)
        assert (both == both[:, :1]).all()
    pairs = 3 * z["0.bias"][:, 0] + z["1.bias"][:, 0]
    assert_law(pairs, [1 / 9] * 9)


def test_elements_are_independent() -> None:
    """ECMP, 8000 draws: any two entries, of one tensor, of weight and bias, or of two layers."""
    z = drawn(make(assignment="element"), 8000)
    w, b, v = z["0.weight"].flatten(1), z["0.bias"], z["1.weight"].flatten(1)
    for first, second in ((w[:, 0], w[:, 1]), (w[:, 0], b[:, 0]), (w[:, 3], v[:, 0])):
        assert_law(3 * first + second, [1 / 9] * 9)


def test_a_member_is_one_component_of_the_whole_network() -> None:
    model = make(assignment="member")
    z = drawn(model, 600)
    everything = torch.cat([value.flatten(1) for value in z.values()], 1)
    assert (everything == everything[:, :1]).all()
    assert_law(everything[:, 0], [1 / 3] * 3)
    ((n, weights),) = model.posterior.stream(0, 600, 600)
    assert n == 600 and torch.bincount(weights["0.bias"][:, 0].detach().long()).tolist() == [0, 200, 200, 200]
    assert sum(w["0.bias"][0, 0].item() for _, w in model.posterior.stream(0, 6, 1)) == 2 * (1 + 2 + 3)
    assert {int(drawn(model, 1, seed)["0.bias"][0, 0]) for seed in range(40)} == {0, 1, 2}


@pytest.mark.parametrize("assignment", ["dropout", "dropconnect"])
def test_dropping_has_the_law_of_torchs_dropout(assignment: str) -> None:
    """4000 outputs of a layer of three inputs against the enumerated law of F.dropout on its inputs (dropout) or
    on its weights (dropconnect), and torch's own outputs against the same law."""
    p, n = 0.3, 4000
    layer = nn.Linear(3, 1)
    x = torch.randn(1, 3)
    model = bf.bayesify(layer, bf.EnsemblePatching(assignment=assignment, drop_prob=p), num_data=10)
    law: dict[float, float] = {}
    with torch.no_grad():
        for mask in itertools.product((0.0, 1.0), repeat=3):
            kept = torch.tensor(mask) / (1 - p)
            value = round(F.linear(x * kept, layer.weight, layer.bias).item(), 5)
            law[value] = (1 - p) ** sum(mask) * p ** (3 - sum(mask))
        ours = [round(model(x).item(), 5) for _ in range(n)]
        torchs = [round(F.linear(F.dropout(x, p), layer.weight, layer.bias).item(), 5) for _ in range(n)]
    values = list(law)
    for outputs in (ours, torchs):
        assert_law(torch.tensor([values.index(v) for v in outputs]), list(law.values()))


def test_dropout_drops_input_units_and_dropconnect_entries() -> None:
    nets = {
        "linear": (nn.Linear(6, 5), lambda w: w.mT),
        "conv": (nn.Conv2d(6, 4, 3), lambda w: w.movedim(-3, 1)),
        "grouped": (
            nn.Conv1d(6, 4, 3, groups=2),
            lambda w: w.view(-1, 2, 2, 3, 3).movedim(3, 2).flatten(1, 2),
        ),
        "transposed": (nn.ConvTranspose2d(6, 4, 3, groups=2), lambda w: w),
        "embedding": (nn.Embedding(6, 4), lambda w: w),
    }
    for name, (layer, by_input) in nets.items():
        options = {"drop_prob": 0.5, "where": bf.where.all}
        weights = {
            how: bf.bayesify(
                type(layer)(**_arguments(layer)), bf.EnsemblePatching(assignment=how, **options)
            ).posterior.draw(0, 200)["weight"]
            for how in ("dropout", "dropconnect")
        }
        rows = (by_input(weights["dropout"]) != 0).flatten(2)  # (draws, inputs, rest)
        assert rows.shape[1] == 6, name
        assert (rows == rows[..., :1]).all(), name
        assert 0 < rows[..., 0].float().mean() < 1
        entries = (by_input(weights["dropconnect"]) != 0).flatten(2)
        assert not (entries == entries[..., :1]).all(), name


def _arguments(layer: Any) -> dict[str, Any]:
    if isinstance(layer, nn.Linear):
        return {"in_features": 6, "out_features": 5}
    if isinstance(layer, nn.Embedding):
        return {"num_embeddings": 6, "embedding_dim": 4}
    return {"in_channels": 6, "out_channels": 4, "kernel_size": 3, "groups": layer.groups}


def test_a_component_fixed_at_zero_leaves_the_biases_alone() -> None:
    model = make(assignment="dropout")
    assert model.summary().random == ["0.weight", "1.weight"]
    assert "biases" in model.summary().deterministic["0.bias"]
    assert model.summary().overhead == 0


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


def test_one_pass_of_members_is_an_explicit_ensemble() -> None:
    model = bf.bayesify(
        nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        bf.EnsemblePatching(3, "member", init="fresh"),
        num_data=10,
    )
    x = torch.randn(5, 3)
    members = [model.member(k) for k in range(3)]
    with torch.no_grad():
        expected = torch.stack([F.softmax(member(x), 1) for member in members])
        outputs = [F.softmax(model(x), 1) for _ in range(30)]
    found = {next(k for k in range(3) if torch.allclose(o, expected[k], atol=1e-6)) for o in outputs}
    assert found == {0, 1, 2}
    for batched in (False, True):  # predictions take all members evenly
        torch.testing.assert_close(model.predict(x, num_draws=6, batched=batched).probs, expected.mean(0))


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


def test_components_have_a_width() -> None:
    """20,000 numbers: std within z standard errors σ/√(2n), for patched, zero and shared weights."""
    n = 20_000
    z = stats.norm.isf(FAILURE_RATE / 2)
    options = {"std": 0.05, "shared_std": 0.02, "where": bf.where.matching("0.weight"), "drop_prob": 0.5}
    for assignment in ("layer", "dropout"):
        model = make(nn.Sequential(nn.Linear(1, n), nn.Linear(n, 1)), assignment=assignment, **options)
        draw = {name: value[0] for name, value in model.posterior.draw(0, 1).items()}
        patched = draw["0.weight"].flatten() - draw["0.weight"].mean().round(decimals=0)
        assert abs(patched.std() - 0.05) < z * 0.05 / (2 * n) ** 0.5
        shared = draw["1.weight"] - model.net[1].weight
        assert abs(shared.std() - 0.02) < z * 0.02 / (2 * n) ** 0.5
        assert not torch.equal(model(torch.ones(1, 1)), model(torch.ones(1, 1)))
        assert "N(w, 0.02²)" in str(model.summary())


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


def test_relaxed_assignments_are_one_hot_and_have_the_law() -> None:
    """6000 straight-through draws."""
    model = make(assignment="element", mixing="learned")
    mixing = model.posterior.mixing
    with torch.no_grad():
        mixing._logits("0.weight").copy_(torch.tensor([0.1, 0.2, 0.7]).log())
        rows = torch.cat([mixing.relaxed("0.weight") for _ in range(500)])  # (6000, 3)
    assert ((rows == 0) | (rows == 1)).all() and (rows.sum(1) == 1).all()
    assert_law(rows.argmax(1), [0.1, 0.2, 0.7])
    assert_law(drawn(model, 500)["0.weight"], [0.1, 0.2, 0.7])


@pytest.mark.parametrize("own", [False, True])
def test_running_statistics_are_those_of_the_plain_layers_fed_the_same(own: bool) -> None:
    """Ten batches; the plain networks are the members, in training mode, one call each."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
    )
    method = bf.EnsemblePatching(2, running_stats="component" if own else "shared", spread=0.5)
    model = bf.bayesify(net, method, num_data=10)
    member = model.member(0)
    tracked: dict[tuple[str, int], dict[str, Tensor]] = {}
    for seed in range(10):
        x = torch.randn(8, 3)
        generator = torch.Generator().manual_seed(seed)
        model(x, generator=generator)
        z = model.posterior.mixing.draw_on_host(generator.manual_seed(seed))
        plain = model.member(z).train()
        for layer in ("1", "3"):
            key = (layer, z[layer] if own else 0)
            state = tracked.setdefault(
                key, {n: b.clone() for n, b in member.get_submodule(layer).named_buffers()}
            )
            plain.get_submodule(layer).load_state_dict(state, strict=False)
        plain(x)
        for layer in ("1", "3"):
            key = (layer, z[layer] if own else 0)
            tracked[key] = {n: b.clone() for n, b in plain.get_submodule(layer).named_buffers()}
    for (layer, k), state in tracked.items():
        for name, expected in state.items():
            if k == 0:
                found = model.net.get_submodule(layer).get_buffer(name)
            else:
                found = model.posterior.stats.others.get_submodule(layer).get_buffer(name)[k - 1]
            torch.testing.assert_close(found, expected, msg=f"{layer} {name} {k}")
    assert {k for _, k in tracked} == ({0, 1} if own else {0})


def test_statistics_of_components_follow_the_draws() -> None:
    net = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2))
    model = bf.bayesify(net, bf.EnsemblePatching(2, running_stats="component", spread=0.0), num_data=10)
    model.posterior.stats.others.get_submodule("0").running_mean.fill_(7.0)
    means = {float(model.draw()[0].running_mean[0]) for _ in range(30)}
    assert means == {0.0, 7.0}
    assert float(model.member(1)[0].running_mean[0]) == 7.0
    assert float(model.fold()[0].running_mean[0]) == 3.5
    outputs = model.predict(torch.zeros(1, 3), num_draws=40, keep_samples=True, batched=True).samples
    assert len({round(float(s), 4) for s in outputs[:, 0, 0]}) == 2


@pytest.mark.parametrize("assignment", ["layer", "element", "member"])
def test_small_tensors_together_and_one_by_one(assignment: str) -> None:
    """The flat form (assignments on the device) gives the weights, the KL and the gradients of the plain one."""
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
    model = bf.bayesify(net.double(), bf.EnsemblePatching(3, assignment, spread=1.0), num_data=10)
    q = model.posterior
    z = q.mixing.draw(torch.device("cpu"))
    chosen = Assigned(q.mixing.by_unit(z), z)
    held = q.held(list(q.slots))
    kl, again, row = q.divergence.carried(q, held, q.flat)
    together = weights_for(q, again, chosen, row, None)
    assert q.flat is not None and set(q.flat.names) == set(q.patches)
    torch.testing.assert_close(kl, q.divergence(q, held))
    apart = weights_for(q, held, chosen, None, None)
    parameters = list(model.parameters())
    gradients = []
    for value, weights in ((kl, together), (q.divergence(q, held), apart)):
        total = 3 * value + sum((w * w.detach().cos()).sum() for w in weights.values())
        gradients.append(torch.autograd.grad(total, parameters))
    for name, weight in apart.items():
        torch.testing.assert_close(together[name], weight)
    for a, b in zip(*gradients, strict=True):
        torch.testing.assert_close(a, b)
    draws = weights_for(q, held, Assigned(q.mixing.by_unit(z[None]), z[None]), row, None, 1)
    for name in q.patches:
        torch.testing.assert_close(draws[name][0], apart[name])


def test_large_and_mixed_tensors_keep_their_own_form() -> None:
    net = nn.Sequential(nn.Linear(300, 200), nn.LayerNorm(200), nn.Linear(200, 2))
    model = bf.bayesify(net, bf.EnsemblePatching(where=bf.where.all, assignment="element"), num_data=10)
    assert set(model.posterior.patches) - set(model.posterior.flat.names) == {"0.weight"}
    assert model(torch.randn(2, 300)).shape == (2, 2)
    mixed = nn.Sequential(nn.Linear(3, 3).double(), nn.Linear(3, 3))
    assert bf.bayesify(mixed, bf.EnsemblePatching(where=bf.where.all), num_data=10).posterior.flat is None
