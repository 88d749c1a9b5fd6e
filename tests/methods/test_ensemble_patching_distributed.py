"""Two processes on gloo: a patched network under DDP and FSDP2 has the gradients of one process."""

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

OPTIONS: dict[str, Any] = {"num_components": 3, "spread": 0.5}


def _worker(rank: int, port: int, job: Callable[..., None], assignment: str, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        job(rank, assignment, folder)
    except BaseException:
        (Path(folder) / f"error-{rank}").write_text(traceback.format_exc())
        raise
    finally:
        dist.destroy_process_group()
    os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)


def run(job: Callable[..., None], assignment: str, folder: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    try:
        mp.spawn(_worker, (port, job, assignment, str(folder)), nprocs=2)
    except Exception:
        raise AssertionError("\n".join(p.read_text() for p in sorted(folder.glob("error-*")))) from None


def make_model(assignment: str, **options: Any) -> bf.BayesianModule:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(6, 8),
        nn.ReLU(),
        nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()),
        nn.Linear(8, 3),
    )
    return bf.bayesify(net, bf.EnsemblePatching(assignment=assignment, **OPTIONS, **options), num_data=20)


def make_batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(8, 6, generator=generator), torch.randint(3, (8,), generator=generator)


def expected_gradients(assignment: str) -> dict[str, Tensor]:
    model = make_model(assignment)
    model.loss(*make_batch(), generator=torch.Generator().manual_seed(2)).total.backward()
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def ddp_job(rank: int, assignment: str, folder: str) -> None:
    model = make_model(assignment)
    wrapped = nn.parallel.DistributedDataParallel(model)
    x, y = make_batch()
    part = slice(4 * rank, 4 * rank + 4)
    for _ in range(3):  # a component that nobody chose must not stop the reduction
        wrapped(x[part], target=y[part]).total.backward()
    model.zero_grad()
    wrapped(x[part], target=y[part], generator=torch.Generator().manual_seed(2)).total.backward()
    for name, expected in expected_gradients(assignment).items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None and torch.allclose(gradient, expected, atol=1e-6), name


def same_draws_job(rank: int, assignment: str, folder: str) -> None:
    x = make_batch()[0]
    for same in (False, True):
        model = make_model(assignment, same_draws=same)
        torch.manual_seed(rank)
        wrapped = nn.parallel.DistributedDataParallel(model)
        equal = []
        for _ in range(12):
            mine = wrapped(x).detach().contiguous()
            both = [torch.empty_like(mine) for _ in range(2)]
            dist.all_gather(both, mine)
            equal.append(torch.equal(*both))
        assert all(equal) == same


def fsdp_job(rank: int, assignment: str, folder: str) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (2,))
    model = make_model(assignment)
    for layer in (model.net[0], model.net[2], model.net[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    x, y = make_batch()
    part = slice(4 * rank, 4 * rank + 4)
    loss = model(x[part], target=y[part], generator=torch.Generator().manual_seed(2))
    loss.total.backward()
    for name, expected in expected_gradients(assignment).items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None, f"{name} got no gradient"
        assert torch.allclose(gradient.full_tensor(), expected, atol=1e-6), name
    assert torch.allclose(loss.kl, make_model(assignment).kl(), rtol=1e-5)
    bf.save(model, Path(folder) / "m.safetensors")


JOBS = {"ddp": ddp_job, "same draws": same_draws_job, "fsdp": fsdp_job}


@pytest.mark.parametrize("assignment", ["layer", "element"])
@pytest.mark.parametrize("job", JOBS)
def test_two_processes(job: str, assignment: str, tmp_path: Path) -> None:
    run(JOBS[job], assignment, tmp_path)
