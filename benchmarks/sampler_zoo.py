"""Samplers at their defaults on posteriors with known moments: is each variance right, or is there a warning?

    python benchmarks/sampler_zoo.py                                   # every target, ATMC and SGNHT
    python benchmarks/sampler_zoo.py --samplers sgld --targets banana  # those whose names hold these words
    python benchmarks/sampler_zoo.py --out zoo.json

40 chains side by side from bad starts, 6,000 steps, half of them burn-in. "low" and "high": the smallest and largest
ratio of a coordinate's mean square about its exact mean to its exact variance; "±" the largest standard error of one,
"R-hat" the largest. A coordinate is missed outside 0.85 to 1.18 by more than 3 standard errors, or
a factor of 2 off.
"said": missed and warned of; "slow": missed, not warned of, R-hat above 1.05 shows it, or not missed but above 2;
"SILENT": missed without a word.
"quantiles": the largest distance of the share of draws below a known quantile from its level; 0.05 is a miss too.
"false alarm": a warning on an easy target that is right, and whose chains agree (R-hat below 1.2).
The exit code is 1 where something is SILENT or a false alarm; slow ones are counted.
"""

import argparse
import json
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "samplers"))
from recovery import Recovery, recover
from targets import Target, all_targets

from timing import table

HEADER = ["target", "sampler", "low", "high", "±", "R-hat", "quantiles", "warned", "verdict", "steps", "s"]


def cells(name: str, found: Recovery) -> list[str]:
    """A row of the table."""
    off = found.quantiles and max((share - q).abs().max().item() for q, (share, _) in found.quantiles.items())
    numbers = (found.ratio.min(), found.ratio.max(), found.error.max(), found.rhat.max())
    return [
        found.target + ("" if found.easy else " *"),
        name,
        *(f"{n:.2f}" for n in numbers),
        "" if off is None else f"{off:.3f}",
        "yes" if found.warnings else "",
        found.verdict,
        str(found.steps),
        f"{found.seconds:.0f}",
    ]


def chosen(words: list[str]) -> list[Target]:
    """Targets whose names hold one of the words; all without words."""
    return [t for t in all_targets() if not words or any(word in t.name for word in words)]


def recovered(case: tuple[str, str], chains: int, steps: int, seed: int) -> Recovery:
    """What a sampler makes of the target of this name."""
    name, sampler = case
    (target,) = (t for t in all_targets() if t.name == name)
    return recover(target, sampler, chains, steps, seed=seed)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samplers", nargs="+", default=["atmc", "sgnht"])
    parser.add_argument("--targets", nargs="+", default=[])
    parser.add_argument("--chains", type=int, default=40)
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1, help="processes beside each other, of one core each")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows, verdicts = [], Counter[tuple[str, str]]()
    cases = [*product([t.name for t in chosen(args.targets)], args.samplers)]
    run = partial(recovered, chains=args.chains, steps=args.steps, seed=args.seed)
    with ProcessPoolExecutor(args.jobs) as pool:
        for (_, name), found in zip(cases, (map if args.jobs == 1 else pool.map)(run, cases), strict=True):
            rows.append(cells(name, found))
            verdicts[name, found.verdict] += 1
            print(" | ".join(rows[-1]), *found.warnings, sep="\n    ", flush=True)
    table("Default settings (* not easy)", rows, HEADER)
    for name in args.samplers:
        print(name, ", ".join(f"{n} {verdict}" for (who, verdict), n in verdicts.items() if who == name))
    if args.out:
        args.out.write_text(
            json.dumps([dict(zip(HEADER, row, strict=True)) for row in rows], indent=1) + "\n"
        )
    sys.exit(any(verdict in ("SILENT", "false alarm") for _, verdict in verdicts))


if __name__ == "__main__":
    main()
