"""Running statistics of batch norm in a patched network, shared or one set a component."""

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf


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


def test_members_have_statistics_of_their_own() -> None:
    """Twelve batches through a member each, one of its layers without parameters; then every member is what a plain
    network would be that saw the member's batches."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 2))
    model = bf.bayesify(net, bf.EnsemblePatching(3, "member", init="fresh"), num_data=10)
    plain = [model.member(k).train() for k in range(3)]
    x = torch.randn(12, 8, 3)
    for seed, batch in enumerate(x):
        generator = torch.Generator().manual_seed(seed)
        model(batch, generator=generator)
        plain[model.posterior.mixing.draw_on_host(generator.manual_seed(seed))[""]](batch)
    assert all(int(member[1].num_batches_tracked) > 0 for member in plain)
    for k, expected in enumerate(plain):
        for name, buffer in model.member(k)[1].named_buffers():
            torch.testing.assert_close(buffer, expected[1].get_buffer(name))
    probs = torch.stack([member.eval()(x[0]).softmax(1) for member in plain]).mean(0)
    torch.testing.assert_close(model.predict(x[0], num_draws=4).probs, probs)


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
