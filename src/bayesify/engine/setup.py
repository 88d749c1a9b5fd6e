"""Devices, processes and compilation."""

import atexit
import os
from typing import Any

import torch
from torch import nn

from bayesify.engine.groups import leave_process_group


def make_fabric(
    accelerator: str, devices: int | str | list[int], num_nodes: int, strategy: str, precision: str
) -> Any:
    """Lightning Fabric, launched. Under torchrun it takes the processes that are there."""
    try:
        from lightning_fabric import Fabric
        from lightning_fabric.strategies import ModelParallelStrategy
    except ImportError as error:
        raise ImportError(f"bf.fit needs {error.name}: pip install 'bayesify[all]'") from None
    chosen: Any = strategy
    if strategy == "fsdp":
        # Fabric's own choice is tensor parallelism inside a node, which would leave the data ranks unsynced
        chosen = ModelParallelStrategy(
            shard,
            data_parallel_size=number_of_processes(accelerator, devices, num_nodes),
            tensor_parallel_size=1,
            save_distributed_checkpoint=False,
        )
    mixed = _autocast() if precision == "bf16-mixed" else None
    try:
        fabric = Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=num_nodes,
            strategy=chosen,
            precision=precision if mixed is None else None,  # type: ignore[arg-type]
            plugins=mixed,
        )
    except Exception as error:  # of many kinds, by what is missing
        raise ValueError(
            f"accelerator={accelerator!r}, devices={devices!r}, strategy={strategy!r}, "
            f"precision={precision!r} cannot be had here: {error}"
        ) from None
    fabric.launch()
    if mixed is not None:
        mixed.device = fabric.device.type
    if fabric.world_size > 1:
        atexit.register(leave_process_group)  # left to the interpreter's end, its threads may abort
    return fabric


def _autocast() -> Any:
    """Mixed precision that casts inside operations only.

    Fabric's own also rounds every floating-point argument of the model, so that regression targets would
    lose all but 8 bits in runs that use its wrappers.
    """
    from lightning_fabric.plugins import MixedPrecision

    class Autocast(MixedPrecision):
        def convert_input(self, data: Any) -> Any:
            return data

    return Autocast("bf16-mixed", device="cpu")


def number_of_processes(accelerator: str, devices: int | str | list[int], num_nodes: int) -> int:
    """Of the launch; of `devices` that nobody can have, which Fabric says, one for each machine."""
    if "WORLD_SIZE" in os.environ:  # torchrun and other launchers
        return int(os.environ["WORLD_SIZE"])
    listed = str(devices).strip("[], ").split(",")
    if len(listed) > 1 or isinstance(devices, list) or str(devices).endswith(","):
        return len(listed) * num_nodes
    if listed[0] in ("auto", "-1"):
        return (torch.cuda.device_count() if accelerator != "cpu" else 1) * num_nodes or num_nodes
    return (int(listed[0]) if listed[0].isdigit() else 1) * num_nodes


def shard(model: nn.Module, mesh: Any) -> nn.Module:
    """FSDP2: `fully_shard` every block of the network, then the model around it.

    A block is an element of a Sequential or ModuleList that has parameters; the outermost wins.
    """
    from torch.distributed.fsdp import fully_shard

    units: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            if isinstance(module, nn.Sequential | nn.ModuleList) and any(True for _ in child.parameters()):
                units.append(child)
            else:
                visit(child)

    visit(model.net)  # type: ignore[arg-type]
    for unit in (*dict.fromkeys(units), model):
        fully_shard(unit, mesh=mesh["data_parallel"])
    return model


def takes_graphs(fabric: Any) -> bool:
    """One GPU: CUDA graphs, because launching a network's kernels one by one takes longer than running them."""
    return fabric.device.type == "cuda" and fabric.world_size == 1


def compile_model(model: nn.Module, fabric: Any) -> Any:
    """`model` compiled. Batches of another size (the last of an epoch) are compiled for themselves."""
    mode = "reduce-overhead" if takes_graphs(fabric) else None
    return torch.compile(model, mode=mode, dynamic=False)


def from_compiler(error: Exception) -> bool:
    """Is it torch's compiler that failed, and not what it compiled?"""
    return any(
        kind.__module__.startswith(("torch._dynamo", "torch._inductor")) for kind in type(error).__mro__
    )


def compile_decision(
    compile: bool | str, model: Any, device: torch.device, num_steps: int
) -> tuple[bool, str]:
    """(compile?, why) for a run of `num_steps` steps."""
    if compile is False:
        return False, "compile: off, as asked"
    if any(isinstance(m, nn.RNNBase) for m in model.modules()):
        return False, "compile: off (torch cannot compile recurrent layers whole)"
    if any(getattr(part, "same_draws", False) for part in model.posterior.modules()):
        return False, "compile: off (same_draws needs a generator)"
    if compile is True:
        return True, "compile: on, as asked"
    if device.type != "cuda":
        return False, f"compile: off (on {device.type}; compile=True switches it on)"
    if num_steps < 1000:
        return False, f"compile: off ({num_steps} steps are too few to pay for it)"
    if compile_backend(compile, model) == "eager":
        return True, "compile: recorded, not compiled (that takes minutes with a sweep; compile=True does it)"
    return True, "compile: on"


def compile_backend(compile: bool | str, model: Any) -> str:
    """Of torch.compile. A training step with a sweep has ten times the operations of the plain one: nobody who did
    not ask waits for them to be compiled. "eager" traces it, so that it can be recorded, and runs it as it is."""
    swept = any(getattr(part, "probed", False) for part in model.posterior.modules())
    return "eager" if compile == "auto" and swept else "inductor"
