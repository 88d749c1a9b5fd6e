"""Every architecture compiled whole, in bf16 and in two processes: forward, backward, finite, the same gradients."""

import os
import socket
import traceback
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from architectures import ARCHITECTURES, assert_close, convert, gradients
from torch import Tensor, nn

from bayesify.likelihoods import categorical

# Swin's attention adds a table of positions to its scores
pytestmark = pytest.mark.filterwarnings("ignore:the covariance of the outputs does not follow")
BF16 = [
    n for n in ARCHITECTURES if n != "monai DenseNet 3-D"
]  # torch's own backward of conv3d has NaN now and then


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_it_compiles_whole(name: str) -> None:
    torch._dynamo.reset()
    model, x, y = convert(name, covariance="outputs")
    torch.manual_seed(1)  # the signs of the probe
    expected = gradients(model, model.eval()(x, target=y).total)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.manual_seed(1)
    assert_close(gradients(model, compiled(x, target=y).total), expected)


@pytest.mark.inductor
@pytest.mark.parametrize("name", ["our ViT"])
def test_it_compiles_with_inductor(name: str) -> None:
    torch._dynamo.reset()
    model, x, y = convert(name)
    torch.manual_seed(1)
    expected = gradients(model, model.eval()(x, target=y).total)
    with torch._inductor.config.patch(fallback_random=True):
        torch.manual_seed(1)
        assert_close(gradients(model, torch.compile(model, fullgraph=True)(x, target=y).total), expected)


@pytest.mark.parametrize("name", BF16)
def test_half_precision(name: str) -> None:
    model, x, y = convert(name)
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.train()(x, target=y)
    assert all(part.isfinite() for part in loss)
    found = gradients(model, loss.total)
    assert found and all(gradient.isfinite().all() for gradient in found.values())


def _alternating(shape: tuple[int, ...], like: Tensor, generator: object) -> Tensor:
    """Signs of the probe that are the same for every example, however a batch is split."""
    return (1 - 2 * (torch.arange(shape[-1]) % 2)).to(like).expand(shape)


def _job(rank: int, port: int, folder: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    categorical.random_signs = _alternating
    try:
        for name in ARCHITECTURES:
            try:
                model, x, y = convert(name, covariance="outputs")
            except pytest.skip.Exception:
                continue
            expected = gradients(model.eval(), model(x, target=y).total)
            part = slice(2 * rank, 2 * rank + 2)
            mine = {key: value[part] for key, value in x.items()} if isinstance(x, dict) else x[part]
            wrapped = nn.parallel.DistributedDataParallel(model)
            found = gradients(model, wrapped(mine, target=y[part]).total)
            assert_close({key: found[key] for key in expected}, expected)
    except BaseException:
        (Path(folder) / f"error-{rank}").write_text(f"{name}\n{traceback.format_exc()}")
        raise
    finally:
        dist.destroy_process_group()
    os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)


def test_two_processes_have_the_gradients_of_one_on_the_joined_batch(tmp_path: Path) -> None:
    """In eval mode, where batch norm does not see which examples are together, and with the same signs of the probe:
    every process draws its own."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    try:
        mp.spawn(_job, (port, str(tmp_path)), nprocs=2)
    except Exception:
        raise AssertionError("\n".join(p.read_text() for p in sorted(tmp_path.glob("error-*")))) from None
