"""The table [train] of a configuration: how a network is trained, from flags, files and --set."""

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Self

from bayesify.engine.options import FILES, HOW, VALIDATION, WHERE, TrainingOptions
from bayesify.engine.schema import option
from bayesify.model.bayesian_module import SCRATCH, STARTS
from bayesify.names import check_choice


@dataclass(frozen=True, kw_only=True)
class TrainTable(TrainingOptions):
    """The options of training and those of the command line alone. Every field is a flag of `bayesify train`."""

    prefix: ClassVar[str] = "train."

    seed: int = 0
    start: str = option(
        HOW,
        "What the network knows: nothing, or it is trained already (a --net of your own that has its weights), for "
        "which priors lie around its weights and steps are small.",
        SCRATCH,
        choices=STARTS,
    )
    batch_size: int = option(HOW, "Examples in a batch (of each device).", 128, least=1)
    augment: bool = option(HOW, "Random crops and flips, where the data set has them.", True)
    val_fraction: float | None = option(
        VALIDATION,
        "Share of the training examples kept for validation; 0 for none.",
        None,
        least=0,
        below=1,
        by_default="0.1, or the data set's own validation part",
    )
    members_in_parallel: bool = option(
        WHERE,
        "Train the members of a deep ensemble apart, each by a share of the processes that torchrun started "
        "(torchrun --nproc-per-node=4 -m bayesify.cli train …), and merge them at the end.",
        False,
    )
    record: bool = option(
        FILES,
        "Write down what the method's diagnostics see in each epoch, for `bayesify report`: the phase transition "
        "of a variance network, temperature and thermostat of a sampler.",
        False,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.members_in_parallel and (self.devices != 1 or self.num_nodes != 1):
            raise ValueError(
                f"--members-in-parallel takes the processes that torchrun started: leave out --devices "
                f"{self.devices} and --num-nodes {self.num_nodes}"
            )

    @classmethod
    def of(cls, table: dict[str, Any]) -> Self:
        """From a table of a file; an unknown key names the nearest one."""
        known = cls.options()
        for key in table:
            check_choice(known, key, "option of [train]")
        return cls(**{key: known[key].read(value) for key, value in table.items()})

    def for_fit(self) -> dict[str, Any]:
        """The options that `bf.fit`, or `bf.fit_members`, takes."""
        of_group = ("devices", "num_nodes") if self.members_in_parallel else ()
        names = [f.name for f in fields(TrainingOptions) if f.name not in of_group]
        return {name: value for name, value in asdict(self).items() if name in names}
