"""What people's training loops do: autocast, accumulation, clipping, schedulers, vmap, export, threads."""

import copy
import threading

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

import bayesify as bf


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def batch(size: int = 12) -> tuple[Tensor, Tensor]:
    return torch.randn(size, 6), torch.randint(3, (size,))


@pytest.mark.parametrize("sampling", ["draw", "local", "flipout"])
def test_bfloat16_autocast(sampling: str) -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(sampling=sampling), num_data=50)
    x, y = batch()
    with torch.autocast("cpu", torch.bfloat16):
        assert model(x).dtype == torch.bfloat16
        loss = model.loss(x, y)
    assert loss.kl.dtype == torch.float32
    assert loss.kl.item() == pytest.approx(model.kl().item(), rel=1e-6)
    loss.total.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_bfloat16_parameters() -> None:
    model = bf.bayesify(mlp().bfloat16(), bf.MonteCarloVI(), num_data=50)
    x, y = batch()
    model.loss(x.bfloat16(), y).total.backward()
    assert all(p.grad is not None and p.grad.dtype == torch.bfloat16 for p in model.posterior.parameters())


def test_gradient_accumulation_equals_one_large_batch() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50)
    x, y = batch()
    generator = torch.Generator()
    model.loss(x, y, generator=generator.manual_seed(1)).total.backward()
    whole = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    for i in range(3):  # the same draw in each part
        part = slice(4 * i, 4 * i + 4)
        (model.loss(x[part], y[part], generator=generator.manual_seed(1)).total / 3).backward()
    for p, expected in zip(model.parameters(), whole, strict=True):
        assert p.grad is not None
        assert torch.allclose(p.grad, expected, atol=1e-6)


def test_clipping_and_schedulers() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50)
    x, y = batch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)
    for _ in range(5):
        optimizer.zero_grad()
        model.loss(x, y).total.backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1) > 0
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-12)


def test_vmap_over_draws() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50).eval()
    x, _ = batch()
    out = torch.func.vmap(lambda _: model(x), randomness="different")(torch.arange(5))
    assert out.shape == (5, 12, 3)
    assert not torch.equal(out[0], out[1])
    assert isinstance(model.net[0].weight, nn.Parameter)


def test_deepcopy_is_independent() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50)
    clone = copy.deepcopy(model)
    with torch.no_grad():
        for p in clone.parameters():
            p.add_(1.0)
    x, y = batch()
    generator = torch.Generator()
    before = model.loss(x, y, generator=generator.manual_seed(0)).total
    assert before != clone.loss(x, y, generator=generator.manual_seed(0)).total
    with pytest.raises(ValueError, match="already bayesified"):
        bf.bayesify(clone.net, "mc_vi")


def test_moving_to_another_dtype() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50).double()
    x, y = batch()
    assert model.loss(x.double(), y).total.dtype == torch.float64


def test_export_of_the_mean_network() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50)
    x, _ = batch()
    exported = torch.export.export(model.mean_net().eval(), (x,)).module()
    assert torch.allclose(exported(x), model.mean_net()(x), atol=1e-6)


def test_two_threads_share_one_model() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=50)
    x, y = batch()
    errors: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(60):
                model.loss(x, y)
                model.predict(x, 2)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not errors
    assert all(isinstance(p, nn.Parameter) for m in model.net.modules() for p in m._parameters.values())
    assert model.training


def test_data_parallel_is_refused() -> None:
    model = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=10)
    replica = model._replicate_for_data_parallel()
    with pytest.raises(RuntimeError, match="DistributedDataParallel"):
        replica(torch.randn(2, 6))
