"""bf.fit over two processes, launched by torchrun."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from distributed_job import CHAIN, GPU_RUNS, SETTINGS, averaged, deterministic_model, ensemble, sampled
from test_checkpoint import assert_same_run, tensors
from training_job import data

import bayesify as bf
from bayesify.data import Loader
from bayesify.samplers.axes import Axes

JOB = Path(__file__).with_name("distributed_job.py")


def torchrun(what: str, folder: Path, processes: int = 2, job: Path = JOB) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    result = subprocess.run(
        [*command, str(job), str(folder), what], capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]


def test_two_processes_train_like_one_on_the_joined_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chain too, along the axes of all inputs, and SWAG; and mixed precision leaves the targets alone there."""
    torchrun("ddp_equals_one", tmp_path / "two")
    one = deterministic_model()
    history = bf.fit(one, Loader(data().train, 20, shuffle=True), **SETTINGS)
    two = tensors(tmp_path / "two" / "model.safetensors")
    for name, value in one.state_dict().items():
        assert torch.allclose(two[name], value, atol=1e-5), name
    assert history[-1]["loss"] > 0
    turned: list[int] = []
    turn = Axes.turn
    monkeypatch.setattr(Axes, "turn", lambda axes, by: (turn(axes, by), turned.append(len(axes.layers(by)))))
    chain, loader = sampled()
    bf.fit(chain, loader(20), **CHAIN)
    assert turned == [2]  # weight and bias
    two = tensors(tmp_path / "two" / "chain" / "model.safetensors")
    for name, value in chain.net.state_dict().items():
        torch.testing.assert_close(two[f"net.{name}"], value, rtol=0, atol=1e-3)
    average = averaged()
    bf.fit(average, Loader(data().train, 20, shuffle=True), **SETTINGS)
    two = tensors(tmp_path / "two" / "average" / "model.safetensors")
    for name, value in average.state_dict().items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-5)


def test_members_train_apart_over_two_processes(tmp_path: Path) -> None:
    torchrun("members_apart", tmp_path)
    one = ensemble()
    bf.fit(one, Loader(data().train, 20, shuffle=True), **SETTINGS)
    two = tensors(tmp_path / "model.safetensors")
    for name, value in one.state_dict().items():
        torch.testing.assert_close(two[name], value, rtol=0, atol=1e-5)


def test_a_run_of_two_processes_resumes_bit_for_bit(tmp_path: Path) -> None:
    torchrun("ddp_first_part", tmp_path)
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    torchrun("ddp_resumed", tmp_path)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")
    with pytest.raises(ValueError, match="had 2 processes, this one has 1"):
        bf.fit(deterministic_model(), Loader(data().train, 10), folder=tmp_path / "whole", epochs=9)


def test_fsdp_trains_a_vision_transformer(tmp_path: Path) -> None:
    torchrun("fsdp_vit", tmp_path)
    assert any("posterior.q" in name for name in tensors(tmp_path / "model.safetensors"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_process_group_on_a_gpu_trains_like_a_plain_process(tmp_path: Path) -> None:
    torchrun("nccl", tmp_path, processes=1)
    for strategy, precision in GPU_RUNS:
        plain = deterministic_model()
        settings = {**SETTINGS, "accelerator": "cuda", "precision": precision}
        bf.fit(plain, Loader(data().train, 20, shuffle=True), **settings)
        grouped = tensors(tmp_path / f"{strategy}-{precision}" / "model.safetensors")
        tolerance = 2e-2 if precision == "bf16-true" else 1e-5  # bfloat16 has 8 bits
        for name, value in plain.state_dict().items():
            assert torch.allclose(grouped[name].to(value.dtype), value.cpu(), atol=tolerance), (
                strategy,
                precision,
                name,
            )
