"""The table [train] of a configuration: how a network is trained, with types and defaults."""

import types
from dataclasses import dataclass, fields
from typing import Any, Union, get_args, get_origin, get_type_hints

from bayesify.engine.schedules import SCHEDULES
from bayesify.names import lookup


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """Options of one training run; most go to `bf.fit` as they are."""

    epochs: int = 10
    seed: int = 0
    batch_size: int = 128
    lr: float | None = None  # the method's own
    schedule: str | None = None
    num_draws: int = 1
    kl_warmup: float = 0.0
    accumulate: int = 1
    clip_norm: float | None = None
    ema: float | None = None
    augment: bool = True
    val_fraction: float | None = None  # a tenth, or the data set's own validation part
    val_draws: int = 20
    patience: int | None = None
    checkpoint_every: int | None = None
    keep_last: int = 2
    accelerator: str = "auto"
    devices: int | str = 1
    num_nodes: int = 1
    strategy: str = "auto"
    precision: str = "32-true"
    compile: bool | str = "auto"
    tensorboard: bool = False
    members_in_parallel: bool = False
    record: bool = False

    def __post_init__(self) -> None:
        for name, kind in get_type_hints(type(self)).items():
            value = getattr(self, name)
            if not _fits(value, kind):
                raise ValueError(f"train.{name}={value!r} must be {_words(kind)}")
            counted = int in (kind, *get_args(kind)) and name != "seed"
            if counted and isinstance(value, int) and value < 1:
                raise ValueError(f"train.{name}={value!r} must be at least 1")
        if self.schedule is not None:
            lookup(SCHEDULES, self.schedule, "schedule")
        if self.val_fraction is not None and not 0 <= self.val_fraction < 1:
            raise ValueError(f"train.val_fraction={self.val_fraction!r} must lie in 0 … 1 (0 for none)")
        if isinstance(self.compile, str) and self.compile != "auto":
            raise ValueError(f"train.compile={self.compile!r} must be true, false or 'auto'")
        if self.members_in_parallel and (self.devices != 1 or self.num_nodes != 1):
            raise ValueError(
                f"--members-in-parallel takes the processes that torchrun started: leave out --devices "
                f"{self.devices} and --num-nodes {self.num_nodes}"
            )

    @classmethod
    def of(cls, table: dict[str, Any]) -> "TrainOptions":
        """From a table of a file; an unknown key names the nearest one."""
        known = {field.name: field for field in fields(cls)}
        for key in table:
            lookup(known, key, "option of [train]")
        devices = table.get("devices")
        if isinstance(devices, str) and devices.isdigit():
            table = {**table, "devices": int(devices)}
        return cls(**table)

    def for_fit(self) -> dict[str, Any]:
        """The options that `bf.fit`, or `bf.fit_members`, takes."""
        ours = ["batch_size", "augment", "val_fraction", "members_in_parallel", "record"]
        if self.members_in_parallel:
            ours += ["devices", "num_nodes"]  # those of the groups
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ours}


def _kinds(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _fits(value: Any, kind: Any) -> bool:
    """Is `value` of the annotated type? Whole numbers pass for real ones, truth values for neither."""
    for each in _kinds(kind):
        if isinstance(value, bool):
            if each is bool:
                return True
        elif isinstance(value, each) or (each is float and isinstance(value, int)):
            return True
    return False


def _words(kind: Any) -> str:
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    return " or ".join(names[each] for each in _kinds(kind) if each in names)
