"""Training over several processes: torchrun … distributed_job.py FOLDER WHAT."""

import os
import sys
from typing import Any

import torch
from training_job import data, train

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.nets import make


def ddp_equals_one(folder: str) -> None:
    """Same draws, no dropout: two processes of batch 10 train like one of batch 20."""
    made = deterministic_model()
    bf.fit(made, Loader(data().train, 10, shuffle=True), devices=2, strategy="ddp", folder=folder, **SETTINGS)
    chain, loader = sampled()
    bf.fit(chain, loader(10), devices=2, strategy="ddp", folder=folder + "/chain", **CHAIN)
    average, batches = averaged(), Loader(data().train, 10, shuffle=True)
    bf.fit(average, batches, devices=2, strategy="ddp", folder=folder + "/average", **SETTINGS)
    every: list[Any] = [None, None]
    torch.distributed.all_gather_object(every, average.posterior.iterates.tensors())
    assert all(torch.equal(value, every[1][name]) for name, value in every[0].items())
    targets_keep_their_bits()


def members_apart(folder: str) -> None:
    """Members of a deep ensemble: on a loader of ours as one process on the joined batch, and on torch's, whose order
    is that of a DistributedSampler, each in an order of its own that goes with the seed."""
    made = ensemble()
    bf.fit(made, Loader(data().train, 10, shuffle=True), devices=2, strategy="ddp", folder=folder, **SETTINGS)
    seen: list[list[int]] = []
    forward = bf.BayesianModule.forward

    def looking(self: Any, x: Any, *, target: Any, **options: Any) -> Any:
        seen.append([int(one[0, 0].item() * 1e6) for one in x.each])
        return forward(self, x, target=target, **options)

    bf.BayesianModule.forward = looking  # type: ignore[method-assign, assignment]
    dataset = torch.utils.data.TensorDataset(data().train.inputs, data().train.targets)
    for seed in (4, 4, 5):
        loader = torch.utils.data.DataLoader(dataset, 10, shuffle=True)
        options = SETTINGS | {"seed": seed, "epochs": 1}
        bf.fit(ensemble(), loader, devices=2, strategy="ddp", **options)
    per_run = len(seen) // 3
    first, again, other = (seen[i * per_run : (i + 1) * per_run] for i in range(3))
    assert first == again != other
    assert all(len({row[m] for m in range(3)}) > 1 for row in first)


def ensemble() -> bf.BayesianModule:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
    return bf.bayesify(net, bf.DeepEnsemble(bf.Point(), 3))


def targets_keep_their_bits() -> None:
    """In mixed precision the network computes in bfloat16, whose 8 bits would make all these targets 1."""
    split = Split(torch.randn(40, 3), 1 + torch.arange(40.0)[:, None] / 4096)
    made = bf.bayesify(torch.nn.Linear(3, 1), bf.Point(), bf.likelihood("normal", std=1.0))
    check, seen = made.likelihood.check, []

    def looking(output: torch.Tensor, target: torch.Tensor, values: bool) -> torch.Tensor:
        if not torch.is_grad_enabled():
            return check(output, target, values)  # a look at the first batches, before training
        assert output.dtype == torch.bfloat16
        seen.append(target)
        return check(output, target, values)

    made.likelihood.check = looking  # type: ignore[method-assign]
    bf.fit(made, Loader(split, 10), devices=2, strategy="ddp", precision="bf16-mixed", **SETTINGS)
    assert all(target.dtype == torch.float32 for target in seen)
    assert set(torch.cat(seen).flatten().tolist()) < set(split.targets.flatten().tolist())


SETTINGS: dict[str, Any] = {
    "epochs": 3,
    "accelerator": "cpu",
    "progress": False,
    "seed": 4,
    "optimizer": lambda params: torch.optim.SGD(params, lr=0.05),
}


CHAIN: dict[str, Any] = SETTINGS | {"epochs": 12, "optimizer": None, "on_bad_sampling": "ignore"}


def sampled() -> tuple[bf.BayesianModule, Any]:
    """A chain on features with a mean, and its loader by the size of batches."""
    torch.manual_seed(0)
    model = bf.bayesify(torch.nn.Linear(6, 2), bf.ThermostatMCMC(), num_data=200)
    split = Split(data().train.inputs + 5, data().train.targets)
    return model, lambda batch: Loader(split, batch, shuffle=True)


def averaged() -> bf.BayesianModule:
    """SWAG of a small network."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
    return bf.bayesify(net, bf.SWAG(rank=4))


def deterministic_model() -> bf.BayesianModule:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.ReLU(), torch.nn.Linear(12, 2))
    return bf.bayesify(net, bf.MonteCarloVI(same_draws=True))


def ddp_resumed(folder: str) -> None:
    for part in ("/whole", "/parts"):
        train(folder + part, "mc_vi", "torch", accelerator="cpu", devices=2, strategy="ddp")


def ddp_first_part(folder: str) -> None:
    """Stops in the middle of an epoch as a killed run would: no goodbye, the checkpoint is what there is."""
    from bayesify.engine.loop import Loop

    count = 0
    original = Loop._step

    def stopping(self: Any, group: Any) -> None:
        nonlocal count
        count += 1
        if count == 11:
            raise SystemExit(0)
        original(self, group)

    Loop._step = stopping  # type: ignore[method-assign]
    train(folder + "/parts", "mc_vi", "torch", accelerator="cpu", devices=2, strategy="ddp")


def fsdp_vit(folder: str) -> None:
    """FSDP trains a small ViT: the loss falls, the file holds the whole model, and it resumes."""
    torch.manual_seed(0)

    def made() -> bf.BayesianModule:
        torch.manual_seed(0)
        net = make("vit_small_patch4", num_outputs=2, input_shape=(1, 8, 8), dim=24, heads=2, depth=2)
        return bf.bayesify(net, bf.MonteCarloVI(init_std=0.01))

    x = torch.rand(64, 1, 8, 8)
    y = (x[:, 0, :4].mean((1, 2)) > x[:, 0, 4:].mean((1, 2))).long()
    options: dict[str, Any] = {
        "accelerator": "cpu",
        "devices": 2,
        "strategy": "fsdp",
        "folder": folder,
        "seed": 0,
        "lr": 3e-3,
        "progress": False,
    }
    loader = Loader(Split(x, y), 8, shuffle=True)
    val = Loader(Split(x, y), 64)
    first = bf.fit(made(), loader, val, epochs=2, **options)
    more = bf.fit(made(), loader, val, epochs=6, **options)
    assert more.column("val_nll")[:2] == first.column("val_nll")
    assert more[-1]["nll"] < more[0]["nll"]
    assert torch.tensor(more.column("val_nll")).isfinite().all()


#: at all precisions but the first, the model is wrapped by Fabric also for one process
GPU_RUNS = [("ddp", "32-true"), ("ddp", "64-true"), ("fsdp", "32-true"), ("fsdp", "bf16-true")]


def nccl(folder: str) -> None:
    """One process with one GPU, in a process group of NCCL."""
    for strategy, precision in GPU_RUNS:
        settings = {**SETTINGS, "accelerator": "cuda", "devices": 1, "precision": precision}
        loader = Loader(data().train, 20, shuffle=True)
        settings["folder"] = f"{folder}/{strategy}-{precision}"
        bf.fit(deterministic_model(), loader, strategy=strategy, **settings)
        assert "nccl" in torch.distributed.get_backend()


if __name__ == "__main__":
    torch.set_num_threads(1)
    globals()[sys.argv[2]](sys.argv[1])
    os._exit(0)  # gloo may abort a process that ends right after a collective (pytorch issue 190489)
