"""A deep ensemble whose members are trained apart: one after the other, or all at once by several processes.

    python 06_members_in_parallel.py                                  # alone
    torchrun --nproc-per-node=4 06_members_in_parallel.py             # a member for each of four GPUs
    torchrun --nproc-per-node=8 06_members_in_parallel.py             # four groups of two GPUs, each by DDP

By Slurm, over two machines of four GPUs with a shared disk:

    srun --nodes=2 --ntasks-per-node=1 --gpus-per-node=4 torchrun --nnodes=2 --nproc-per-node=4 \
        --rdzv-backend=c10d --rdzv-id=$SLURM_JOB_ID \
        --rdzv-endpoint=$(scontrol show hostnames | head -n 1):29500 06_members_in_parallel.py shared/folder

Member i has its own seed, so it comes out the same whoever trains it. A run that was stopped goes on when
the same command is given again, and members of other runs join by bf.merge([files], net).
"""

import sys
from pathlib import Path

from torch import nn

import bayesify as bf
from bayesify.data import Loader, load

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/members")
data = load("digits").with_validation(0.1, seed=0)
train = Loader(data.train, 64, shuffle=True, normalise=data.normalisation)
val = Loader(data.val, 256, normalise=data.normalisation)
test = Loader(data.test, 256, normalise=data.normalisation)


def make_net() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))


def make_model() -> bf.BayesianModule:
    return bf.bayesify(make_net(), bf.Point())


ensemble = bf.fit_members(
    make_model,
    train,
    val,
    num_members=4,
    folder=folder,
    seed=0,
    epochs=20,
    lr=3e-3,
    progress=False,
)
if ensemble is not None:  # the first process has it
    for path in sorted(folder.glob("member-*/model.safetensors")):
        numbers = bf.evaluate(bf.load(path, make_net()), test)
        print(f"{path.parent.name}: accuracy {numbers['accuracy']:.3f}, nll {numbers['nll']:.3f}")
    numbers = bf.evaluate(ensemble, test)
    print(f"ensemble of 4: accuracy {numbers['accuracy']:.3f}, nll {numbers['nll']:.3f}")
