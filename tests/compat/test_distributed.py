"""Two processes on gloo: DDP and FSDP2 give the gradients of one process on the joined batch."""

import copy
import os
import socket
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor, nn

import bayesify as bf


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def _worker(rank: int, port: int, size: int, job: Callable[..., None], folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(size))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        job(rank, size, folder)
    except BaseException:
        (Path(folder) / f"error-{rank}").write_text(traceback.format_exc())
        raise
    finally:
        dist.destroy_process_group()
    os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)


def run(job: Callable[..., None], folder: Path, size: int = 2) -> None:
    try:
        mp.spawn(_worker, (_free_port(), size, job, str(folder)), nprocs=size)
    except Exception:
        errors = "\n".join(p.read_text() for p in sorted(folder.glob("error-*")))
        raise AssertionError(errors) from None


def make_net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(6, 8),
        nn.ReLU(),
        nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()),
        nn.Linear(8, 3),
    )


def make_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)


def expected_gradients() -> dict[str, Tensor]:
    model = bf.bayesify(make_net(), bf.MonteCarloVI(), num_data=20)
    x, y = make_batch()
    model.loss(x, y, generator=torch.Generator().manual_seed(2)).total.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def ddp_job(rank: int, size: int, folder: str) -> None:
    model = bf.bayesify(make_net(), bf.MonteCarloVI(), num_data=20)
    wrapped = nn.parallel.DistributedDataParallel(model)
    x, y = make_batch()
    part = slice(4 * rank, 4 * rank + 4)
    loss = wrapped(x[part], target=y[part], generator=torch.Generator().manual_seed(2))
    loss.total.backward()
    for name, expected in expected_gradients().items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None and torch.allclose(gradient, expected, atol=1e-6), name


def ddp_own_draws_job(rank: int, size: int, folder: str) -> None:
    for same in (False, True):
        model = bf.bayesify(make_net(), bf.MonteCarloVI(same_draws=same), num_data=20)
        torch.manual_seed(rank)
        wrapped = nn.parallel.DistributedDataParallel(model)
        x, _ = make_batch()
        for _ in range(2):
            mine = wrapped(x).detach().contiguous()
            all_ranks = [torch.empty_like(mine) for _ in range(size)]
            dist.all_gather(all_ranks, mine)
            assert torch.equal(all_ranks[0], all_ranks[1]) == same
        assert not torch.equal(wrapped(x), wrapped(x))


def fsdp_job(rank: int, size: int, folder: str, per_layer: bool) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (size,))
    model = bf.bayesify(make_net(), bf.MonteCarloVI(), num_data=20)
    if per_layer:
        for layer in (model.net[0], model.net[2], model.net[3]):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    x, y = make_batch()
    assert not torch.equal(model(x), model(x)), "two draws are the same"
    part = slice(4 * rank, 4 * rank + 4)
    # units draw in the order of execution, which is the order of registration here
    loss = model(x[part], target=y[part], generator=torch.Generator().manual_seed(2))
    loss.total.backward()
    for name, expected in expected_gradients().items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None, f"{name} got no gradient"
        assert torch.allclose(gradient.full_tensor(), expected, atol=1e-6), name
    plain = bf.bayesify(make_net(), bf.MonteCarloVI(), num_data=20)
    assert torch.allclose(model.kl(), plain.kl(), rtol=1e-5)
    assert torch.allclose(loss.kl, plain.kl(), rtol=1e-5)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    before = loss.total.item()
    for _ in range(20):
        optimizer.zero_grad()
        loss = model(x[part], target=y[part])
        loss.total.backward()
        optimizer.step()
    assert loss.total.item() < before

    bf.save(model, Path(folder) / "model.safetensors")
    dist.barrier()
    loaded = bf.load(Path(folder) / "model.safetensors", make_net())
    assert torch.allclose(loaded.kl(), model.kl(), rtol=1e-5)


def fsdp_newton_job(rank: int, size: int, folder: str) -> None:
    """Steps on shards are those of one process, from the first draw on; the state is placed like the parameters."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model, plain = (bf.bayesify(make_net(), bf.IVON(beta2=0.9), num_data=20) for _ in range(2))
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    x, y = make_batch()
    optimizers = model.optimizer(lr=0.5), plain.optimizer(lr=0.5)
    for step in range(3):
        for each, optimizer in zip((model, plain), optimizers, strict=True):
            optimizer.zero_grad()
            each(x, target=y, generator=torch.Generator().manual_seed(step)).total.backward()
            optimizer.step()
    for name, p in plain.named_parameters():
        torch.testing.assert_close(model.get_parameter(name).full_tensor(), p, rtol=1e-4, atol=1e-6)
    states = [state["momentum"] for state in optimizers[0].state_dict()["state"].values()]
    assert len(states) == 8 and all(hasattr(state, "full_tensor") for state in states)


def fsdp_per_layer_job(rank: int, size: int, folder: str) -> None:
    fsdp_job(rank, size, folder, per_layer=True)


def fsdp_root_job(rank: int, size: int, folder: str) -> None:
    fsdp_job(rank, size, folder, per_layer=False)


def fsdp_network_only_job(rank: int, size: int, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = bf.bayesify(make_net(), bf.MonteCarloVI(), num_data=20)
    fully_shard(model.net, mesh=init_device_mesh("cpu", (size,)))
    with pytest.raises(RuntimeError, match="fully_shard\\(model\\)"):
        model(make_batch()[0])


JOBS: dict[str, Any] = {
    "ddp": ddp_job,
    "ddp, own and same draws": ddp_own_draws_job,
    "fsdp per layer": fsdp_per_layer_job,
    "fsdp at the root": fsdp_root_job,
    "fsdp, variational Newton": fsdp_newton_job,
    "fsdp of the network only": fsdp_network_only_job,
}


@pytest.mark.parametrize("job", JOBS)
def test_two_processes(job: str, tmp_path: Path) -> None:
    run(JOBS[job], tmp_path)


def test_the_expected_gradients_are_not_all_zero() -> None:
    gradients = expected_gradients()
    assert all(g.any() for g in gradients.values())
    assert len(gradients) == len(list(copy.deepcopy(make_net()).parameters())) + 6
