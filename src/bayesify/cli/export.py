"""`bayesify export`: a trained model as one file for other runtimes."""

from pathlib import Path
from typing import Annotated

import typer

from bayesify.cli.flags import Best, Net, RunFolder, Trust


def export(
    run: RunFolder,
    out: Annotated[
        Path, typer.Option(help="The file: NAME.onnx for ONNX runtimes, NAME.pt2 for torch.export.load.")
    ],
    num_draws: Annotated[int, typer.Option(min=1, help="Draws in the file.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Of the draws.")] = 0,
    best: Best = False,
    net: Net = None,
    trust: Trust = False,
) -> None:
    """Write a run's model, with fixed draws, as a program that needs no bayesify.

    It takes a batch of inputs in original units (images as bytes) and gives probs, entropy and mutual_information of
    classes, mean, variance and epistemic of numbers in original units, and says what it holds in its metadata.

    Example: bayesify export runs/first --out model.onnx
    """
    import torch

    import bayesify as bf
    from bayesify.cli.run import Run
    from bayesify.cli.terminal import output

    trained = Run.at(run, net, trust)
    task = trained.task
    kind = torch.uint8 if task["inputs"] == "bytes" else torch.float32
    frozen = trained.model("best" if best else "last").freeze(num_draws, torch.Generator().manual_seed(seed))
    example = torch.zeros(2, *task["input_shape"], dtype=kind)
    names = task["class_names"]
    bf.export(frozen, example, out, seed=seed, class_names=names, normalise=trained.normalisation)
    cost = frozen.cost(trained.normalisation.inputs(example[:1]))
    output().print(f"{out}: {out.stat().st_size / 2**20:.1f} MiB; here, in torch: {cost}", soft_wrap=True)
