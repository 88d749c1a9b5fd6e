"""bf.fit_members: the members of a deep ensemble, each trained by a group of processes of its own."""

import csv
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor

from bayesify.atomic import read_json, write_json
from bayesify.checks import Count, Positive, check_content, check_whole, checked
from bayesify.engine.apart import own_loader
from bayesify.engine.fit import fit
from bayesify.engine.folder import RunFolder
from bayesify.engine.groups import Group, World, split_processes
from bayesify.engine.history import History
from bayesify.engine.position import SEEDS, order_generator
from bayesify.engine.randomness import seed_everything
from bayesify.evaluation.calibrate import calibrate, calibrate_noise
from bayesify.files.merge import merge
from bayesify.files.storage import save_in_run
from bayesify.model import BayesianModule
from bayesify.posteriors import without_guards
from bayesify.weights.copies import copy_of

MODEL, BEST, NOTE, METRICS = "model.safetensors", "best.safetensors", "member.json", "metrics.csv"
POLL = 0.2  # seconds between two looks at the folder


@checked
def fit_members(
    make_model: Callable[[], BayesianModule],
    train_loader: Iterable[Any],
    val_loader: Iterable[Any] | None = None,
    *,
    num_members: Count,
    folder: str | Path,
    seed: int,
    epochs: Count,
    num_groups: Count | None = None,
    wait: Positive = 3600.0,
    **options: Any,
) -> BayesianModule | None:
    """Train `num_members` models apart and merge them into one deep ensemble.

    Under torchrun the processes are cut into `num_groups` groups, and group g trains members g,
    g + num_groups, …; each member is a run of `bf.fit` in folder/member-i, over the processes of its
    group. Without torchrun the members are trained one after the other. Either way member i has seed
    `seed` + i for its first weights and its training, and an order of the data of its own where it comes from a
    `bayesify.data.Loader`, a generator or the random numbers of torch. So the members do not depend on who
    trained them (a group of several processes averages over larger batches, as `bf.fit` does).

    make_model:  makes a new model; called under the member's seed, so it must not set one itself
    num_groups:  by default the largest possible one that gives every group a member
    wait:        seconds that the first process waits without any change in the folder of a missing member
    options:     of `bf.fit`; `calibrate` is for the ensemble, not its members, `devices` and `num_nodes`
                 are those of the group, and `strategy` applies to
                 groups of several processes

    Returns the ensemble in the first process, and None in the others. The folder gets model.safetensors,
    best.safetensors (every member at its best epoch, with a val_loader) and metrics.csv. A stopped run
    goes on when it is started again, also with other epochs or more members.
    """
    folder = Path(folder)
    _check(seed, options)
    groups = number_of_groups(num_members, num_groups)
    calibrated, options = options.get("calibrate"), {**options, "calibrate": False}
    if calibrated and val_loader is None:
        raise ValueError("calibrate=True needs a val_loader: examples that the members are not trained on")
    calibrates: Callable[[BayesianModule], object] | None = None
    if val_loader is not None and calibrated is not False:
        how, draws = calibrate if calibrated else calibrate_noise, options.get("val_draws", 20)
        calibrates = lambda merged: how(merged, val_loader, draws, Generator().manual_seed(0))  # noqa: E731
    first = World.here().rank == 0
    shown = bool(options.pop("progress", True))
    generator = order_generator(train_loader)
    order = None if generator is None else (generator, generator.get_state(), generator.initial_seed())
    with RunFolder(folder, True, True) if first else nullcontext():
        with split_processes(groups, options.get("accelerator", "auto")) as group:
            for index in range(group.index, num_members, groups):
                member = _Member(folder / f"member-{index}", seed + index, epochs)
                if order is not None:
                    _set_order(*order, index)
                loaders = (own_loader(train_loader, index), val_loader)
                _train(member, make_model, loaders, group, {**options, "progress": shown and first})
        if not first:
            return None
        members = [_Member(folder / f"member-{i}", seed + i, epochs) for i in range(num_members)]
        _wait_for(members, wait, shown)
        return _merge(members, make_model, folder, calibrates)


class _Member:
    """The folder of one member, and what its run was asked for."""

    def __init__(self, folder: Path, seed: int, epochs: int) -> None:
        self.folder, self.seed, self.epochs = folder, seed, epochs

    def finished(self) -> bool:
        """Is the member trained as asked? A file of an earlier, shorter run does not count."""
        return self.read().get("finished_epochs") == self.epochs and (self.folder / MODEL).exists()

    def check(self) -> None:
        """The run in this folder must be one with our seed."""
        stored = self.read().get("seed", self.seed)
        if stored != self.seed:
            raise ValueError(
                f"{self.folder} holds a run with seed {stored}, this member has {self.seed}: "
                f"go on with the same seed, or choose another folder"
            )

    def read(self) -> dict[str, Any]:
        path = self.folder / NOTE
        note = read_json(path) if path.exists() else {}
        check_content(note, {"seed?": int | None, "finished_epochs?": int | None}, path)
        return note

    def write(self, finished_epochs: int | None) -> None:
        note = {"seed": self.seed, "finished_epochs": finished_epochs}
        write_json(self.folder / NOTE, note)

    def state(self) -> list[tuple[str, int]]:
        """What changes while somebody trains here."""
        return sorted((str(path), _changed(path)) for path in self.folder.rglob("*"))


def _train(
    member: _Member,
    make_model: Callable[[], BayesianModule],
    loaders: tuple[Any, Any],
    group: Group,
    options: dict[str, Any],
) -> None:
    """One member, by this process and the others of its group."""
    member.check()
    if group.agreed(member.finished()) and options.get("resume", True):
        return
    options = {**options, **group.options(options.get("accelerator", "auto"))}
    if group.size == 1:
        options["strategy"] = "auto"  # any other would join the groups in one world
    seed_everything(member.seed)
    model = make_model()
    if not isinstance(model, BayesianModule):
        raise TypeError(f"make_model returned {type(model).__name__}: it must return what bf.bayesify gives")
    if group.rank == 0 and not member.read():
        member.write(None)
    fit(model, *loaders, epochs=member.epochs, folder=member.folder, seed=member.seed, **options)
    if group.rank == 0:
        member.write(member.epochs)


def _set_order(generator: Generator, state: Tensor, seed: int, index: int) -> None:
    """A DataLoader's generator as member `index` has it, whoever trained another member before."""
    generator.set_state(state)
    if index:
        generator.manual_seed((seed + index * SEEDS) % 2**63)


def _wait_for(members: Sequence[_Member], wait: float, shown: bool) -> None:
    """Until the files of all members are there, or nothing has changed in the missing ones for `wait` s."""
    seen: Any = None
    since, said = time.monotonic(), False
    while missing := [member for member in members if not member.finished()]:
        names = ", ".join(member.folder.name for member in missing)
        if shown and not said:
            print(f"waiting for {names}", file=sys.stderr, flush=True)
            said = True
        now = [member.state() for member in missing]
        if now != seen:
            seen, since = now, time.monotonic()
        if time.monotonic() - since > wait:
            raise TimeoutError(
                f"{names} of {members[0].folder.parent} did not finish: nothing has changed there for "
                f"{wait:g} s (wait={wait:g}). Start the same command again: it goes on from the checkpoints"
            )
        time.sleep(POLL)


def _merge(
    members: Sequence[_Member],
    make_model: Callable[[], BayesianModule],
    folder: Path,
    calibrates: Callable[[BayesianModule], object] | None,
) -> BayesianModule:
    """The members' files as one model, written to `folder`, and calibrated there."""
    template = make_model()
    for name in (BEST, MODEL):
        files = [member.folder / name for member in members]
        if name == MODEL or all(path.exists() for path in files):
            merged = merge(files, without_guards(copy_of(template.net)), output=template.output)
            if name == MODEL and calibrates is not None:
                calibrates(merged)
            save_in_run(merged, folder / name)
    _histories(members).write_csv(folder / METRICS)
    return merged


def _histories(members: Sequence[_Member]) -> History:
    """The rows of all members, each with the number of its member."""
    rows: list[dict[str, Any]] = []
    for number, member in enumerate(members):
        with (member.folder / METRICS).open(encoding="utf-8", newline="") as file:
            rows += [{"member": number, **row} for row in csv.DictReader(file)]
    return History(rows)


def _check(seed: int, options: dict[str, Any]) -> None:
    check_whole(seed, "seed", 0)
    if isinstance(options.get("optimizer"), torch.optim.Optimizer):
        raise ValueError(
            "optimizer is an optimiser of one model: give a function of the parameters that makes one"
        )
    for name in ("devices", "num_nodes"):
        if name in options:
            raise ValueError(
                f"{name}={options[name]!r} cannot be chosen here: every group takes the processes it has; "
                f"use num_groups"
            )


def number_of_groups(num_members: int, wanted: int | None = None) -> int:
    """Into which the processes of this launch are cut; by default as many as possible."""
    if wanted is None:
        return max((n for n in World.here().cuts() if n <= num_members), default=num_members)
    if wanted > num_members:
        raise ValueError(
            f"num_groups={wanted!r} is more than num_members={num_members!r}: a group would be idle"
        )
    return wanted


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:  # a checkpoint that was replaced meanwhile
        return 0
