"""The page docs/families_and_priors.md: which pairs of a family and a prior have a KL, and by which estimators.

python benchmarks/families_and_priors.py > docs/families_and_priors.md
"""

from collections.abc import Iterator
from typing import Any

import torch

from bayesify.divergences.support import Pair, describe, example
from bayesify.families import FAMILIES, NOTE
from bayesify.priors import PRIORS, prior

SAMPLED = {"repar O(1)": "1", "repar O(M)": "M", "stream": "S", "none": ""}
LIKE = torch.ones(2, 2)
#: the others give every tensor one of these
SHOWN = [name for name in PRIORS if prior(name).at("weight", LIKE).name == name]
#: options that change what a pair has, beside the defaults
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("gamma", {"concentration": 0.8}),
    ("erlang", {"concentration": 1}),
    ("weibull", {"concentration": 0.8}),
    ("weibull", {"concentration": 2.0}),
    ("inverse_gamma", {"concentration": 0.8}),
    ("inverse_gamma", {"concentration": 1.5}),
    ("error", {"tail": 2.0}),
    ("zero_mean_error", {"tail": 2.0}),
]
PRIOR_OPTIONS: list[tuple[str, dict[str, Any]]] = [
    ("laplace", {"loc": 0.5}),
    ("error", {"tail": 0.5}),
    ("error", {"tail": 2.0}),
    ("weibull", {"concentration": 2.0}),
    ("pareto", {"scale": 2.0}),
]

HEAD = """# Families and priors

Which pairs of a posterior family and a prior have a KL, and by which estimators. This page is written by
`python benchmarks/families_and_priors.py`, which decides every cell from supports, moments and tuples; a test keeps it
up to date. Ask for one pair, with your options, by `bayesify.divergences.support(family, prior, **family_options)`.

| mark | meaning |
|---|---|
| E | `exact`: no draws |
| 1 | `repar` at a cost that does not depend on the number of draws M: their statistics are drawn at once |
| M | `repar` in time O(M); the graph and memory do not depend on M |
| S | `stream` in time O(M); the graph and memory do not depend on M |
| T | `taylor` beside `stream`, where the draws lie in the region of convergence |
| a letter alone | impossible, for the reason below |
| a letter in brackets | a condition, or why there is no Monte-Carlo estimator, below |

`auto` takes E, else 1 or M, else S. Where a pair has 1 or M it has `stream`, too. `direct` goes with every pair that
has 1, M or S; its graph grows with M. Families and priors have their default options.
Draws of `radial`, `laplace`, `logistic` and `horseshoe` take time O(M) with every prior: they cannot be summed up in
closed form.
"""


def markdown() -> str:
    """The whole page."""
    reasons: list[str] = []
    lines = [HEAD, NOTE, "", "## Default options", "", f"| family | {' | '.join(f'`{p}`' for p in SHOWN)} |"]
    lines.append("|---" * (len(SHOWN) + 1) + "|")
    for family in FAMILIES:
        cells = [_cell(_pair(family, {}, p, {}), reasons) for p in SHOWN]
        lines.append(f"| `{family}` | {' | '.join(cells)} |")
    changes = list(_changes(reasons))
    lines += ["", "Reasons: why a pair is impossible or has no Monte-Carlo estimator, and a condition", ""]
    lines += [f"- {_letter(i)}: {reason}" for i, reason in enumerate(reasons)]
    lines += ["", "`dirichlet` is listed to say so: no family of this library goes with it.", ""]
    others = ", ".join(f"`{name}`" for name in PRIORS if name not in SHOWN)
    lines += [f"Priors that give every tensor one of the above: {others}.", ""]
    lines += [
        "## Options that change a cell",
        "",
        "| family | prior | default options | with these |",
        "|---|---|---|---|",
    ]
    lines += changes
    return "\n".join(lines) + "\n"


def _pair(family: str, options: dict[str, Any], name: str, prior_options: dict[str, Any]) -> Pair:
    return describe(example(FAMILIES[family], **options), prior(name, **prior_options))


def _cell(pair: Pair, reasons: list[str]) -> str:
    marks = ("E" if "exact" in pair.estimators else "") + SAMPLED[pair.sampled]
    marks += "T" if "taylor" in pair.estimators else ""
    if not pair.reason:
        return marks
    if pair.reason not in reasons:
        reasons.append(pair.reason)
    letter = _letter(reasons.index(pair.reason))
    return f"{marks} ({letter})" if marks else letter


def _letter(index: int) -> str:
    return "abcdefghijklmnopqrstuvwxyz"[index]


def _changes(reasons: list[str]) -> Iterator[str]:
    """Rows of the second table: every cell that options change."""
    for family, options in OPTIONS:
        for name in SHOWN:
            yield from _row(family, options, name, {}, reasons)
    for name, prior_options in PRIOR_OPTIONS:
        for family in FAMILIES:
            yield from _row(family, {}, name, prior_options, reasons)
    yield from _row("weibull", {"concentration": 2.0}, "weibull", {"concentration": 2.0}, reasons)


def _row(
    family: str, options: dict[str, Any], name: str, prior_options: dict[str, Any], reasons: list[str]
) -> Iterator[str]:
    before = _cell(_pair(family, {}, name, {}), reasons)
    after = _cell(_pair(family, options, name, prior_options), reasons)
    if before != after and not {before, after} <= {_letter(i) for i in range(len(reasons))}:
        yield f"| {_call(family, options)} | {_call(name, prior_options)} | {before} | {after} |"


def _call(name: str, options: dict[str, Any]) -> str:
    inside = ", ".join(f"{key}={value!r}" for key, value in options.items())
    return f"`{name}({inside})`" if inside else f"`{name}`"


if __name__ == "__main__":
    print(markdown(), end="")
