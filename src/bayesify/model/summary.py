"""What a conversion did: which parameters are random, which stayed, and why."""

from dataclasses import dataclass

from bayesify.weights.selection import Weight


@dataclass(frozen=True)
class Summary:
    """The report of one conversion; `print` it."""

    method: str
    rows: tuple[Weight, ...]  # their reason: what random ones became, and why others did not
    num_parameters: int  # of the plain network
    num_random: int
    num_total: int  # of the Bayesian network
    notes: tuple[str, ...]

    @property
    def overhead(self) -> float:
        """Extra parameters in % of the plain network's."""
        return 100 * (self.num_total - self.num_parameters) / max(self.num_parameters, 1)

    @property
    def random(self) -> list[str]:
        """Names of the random parameters."""
        return [row.name for row in self.rows if row.random]

    @property
    def deterministic(self) -> dict[str, str]:
        """Name -> why it stayed deterministic."""
        return {row.name: row.reason for row in self.rows if not row.random}

    def __str__(self) -> str:
        lines = [f"{self.method}: {len(self.random)} of {len(self.rows)} parameter tensors are random"]
        width = max((len(row.name) for row in self.rows), default=0)
        for row in self.rows:
            mark = "~" if row.random else "="
            tied = f"  tied: {', '.join(row.aliases)}" if row.aliases else ""
            shape = "×".join(map(str, row.shape)) or "scalar"
            lines.append(f"  {mark} {row.name:<{width}}  {shape:>16}  {row.reason}{tied}")
        lines.append(
            f"parameters: {self.num_parameters:,} in the network, {self.num_random:,} of them random, "
            f"{self.num_total:,} in all (+{self.overhead:.2f} %)"
        )
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines)
