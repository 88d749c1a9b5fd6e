"""From evaluations to a report: one page, and the main table in four formats."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from bayesify.atomic import write_text
from bayesify.evaluation.metrics import BUILT_IN
from bayesify.evaluation.metrics.registry import fact, written
from bayesify.methods import method_class
from bayesify.report import posterior_sections, sections
from bayesify.report.comparison import Row, comparison, grouped, metrics_of, with_corruption_errors
from bayesify.report.page import Copy, Folded, List, Page, Section
from bayesify.report.tables import Cell, Column, Table
from bayesify.studies.suites import SUITES, Evaluation, Outcome

#: the chapters in their order, each a function of the report's rows; None where they have nothing to say.
#: A suite that has none of its name gets a table
SECTIONS: dict[str, Callable[[Sequence[Row]], Section | None]] = {
    "calibration": sections.calibration_section,
    "regression": sections.regression_section,
    "conformal": sections.conformal_section,
    "ood": sections.ood_section,
    "corruption": sections.corruption_section,
    "shift": sections.shift_section,
    "adversarial": sections.adversarial_section,
    "saliency": sections.saliency_section,
    "compression": sections.compression_section,
    "kl": posterior_sections.kl_section,
    "variance": posterior_sections.variance_section,
    "chain": posterior_sections.chain_section,
    "examples": sections.examples_section,
}
OVERVIEW = ("accuracy", "nll", "brier", "ece", "aurc", "rmse", "crps", "calibration_error", "coverage90")
HIDDEN = ("settings", "name", "sampling")  # facts that are no column of the table of runs
FROM_OTHERS = (("ood", "auroc"), ("corruption", "corrupted/accuracy"), ("shift", "rotated_30/accuracy"))
#: suite -> its paper; methods carry theirs
PAPERS = {
    "calibration": "C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger: On Calibration of Modern Neural Networks. ICML 2017.",
    "conformal": "Y. Romano, M. Sesia, E. J. Candès: Classification with Valid and Adaptive Coverage. NeurIPS 2020.",
    "corruption": "D. Hendrycks, T. Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and "
    "Perturbations. ICLR 2019.",
}


class Report:
    """The evaluations of one or several runs, as tables and a page.

    >>> report = Report(evaluations, "Digits")
    >>> report.write(Path("report.html"))
    """

    def __init__(
        self, evaluations: Sequence[Evaluation], title: str = "", class_names: Sequence[str] | None = None
    ) -> None:
        if not evaluations:
            raise ValueError("evaluations is empty: a report needs at least one run")
        self.rows = with_corruption_errors(grouped(evaluations, class_names))
        self.title = title if title else " · ".join(row.label for row in self.rows[:3])

    def overview(self) -> Table:
        """The table that a results section has: quality, calibration, shift, cost."""
        rows = [_joined(row) for row in self.rows]
        others = [
            key
            for suite, end in FROM_OTHERS
            for key in metrics_of(self.rows, suite)
            if key == end or key.endswith(f"/{end}")  # as "letters/auroc"
        ]
        measured = metrics_of(self.rows, "calibration")
        registered = [key for key in measured if "/" not in key and key not in BUILT_IN]
        keys = [*OVERVIEW, *registered, *others, "parameters", "seconds"]
        return comparison(rows, "overview", keys, "Results")

    def page(self) -> Page:
        """The whole report."""
        rows, table = self.rows, self.overview()
        found = [section(rows) for section in SECTIONS.values()]
        found += [sections.suite_section(name, rows) for name in SUITES if name not in SECTIONS]
        for method in dict.fromkeys(row.method for row in rows):
            found += method.report_sections([row for row in rows if row.method is method])
        copies = [Copy(text) for text in (table.markdown(), table.csv(), table.latex())]
        files = Folded("This table as Markdown, CSV or LaTeX", copies, printed=False)
        first = Section("Results", [List([*self._not_sampled(), *self.in_short(table)]), table, files])
        made = [first, *(s for s in found if s is not None), self._runs(), self._papers()]
        count = sum(len(row.runs) for row in rows)
        averaged = f", averaged over seeds into {_counted(len(rows), 'row')}" if count > len(rows) else ""
        lead = (
            f"{_counted(count, 'run')}{self._data()}{averaged}: how often the answers are right, and how far the "
            f"stated uncertainty can be trusted."
        )
        shown = [section for section in made if section.parts]
        return Page(self.title, lead, shown, "Made by bayesify; this file needs no network.")

    def in_short(self, table: Table) -> list[str]:
        """The best of each column in words."""
        points = []
        for number, column in enumerate(table.columns):
            best = [row for row in table.rows if number and row[number].best]
            if not best or column.better is None or column.key in ("seconds", "parameters"):
                continue
            tied = [row[0].text for row in table.rows if row[number].tied]
            also = f"; not told apart from it: {', '.join(tied)}" if tied else ""
            if len(tied) == len(table.rows) - 1:
                also = "; none of the others is told apart from it"
            points.append(f"Best {column.header}: {best[0][0].text}, {best[0][number].text}{also}.")
        return points

    def _not_sampled(self) -> list[str]:
        """Runs whose draws are not those of the posterior, as the check of their sampler found."""
        runs = [run for row in self.rows for run in row.runs]
        return [f"{run.label}: {run.facts['sampling']}." for run in runs if run.facts.get("sampling")]

    def write(self, path: Path) -> None:
        """The page as a file."""
        write_text(path, self.page().html())

    def _data(self) -> str:
        found = {str(run.facts["data"]) for row in self.rows for run in row.runs if run.facts.get("data")}
        return f" on {', '.join(sorted(found))}" if found else ""

    def _runs(self) -> Section:
        """What was run, in full."""
        runs = [run for row in self.rows for run in row.runs]
        keys = list(dict.fromkeys(k for run in runs for k in run.facts if k not in HIDDEN))
        if not keys:
            return Section("Runs", [])
        columns = [Column(k, k.replace("_", " ")) for k in ("run", "method", *keys)]
        body = [
            [Cell(run.label), Cell(run.method), *(_fact_cell(k, run.facts.get(k)) for k in keys)]
            for run in runs
        ]
        return Section("Runs", [Table("What was run", columns, body)])

    def _papers(self) -> Section:
        suites = (name for row in self.rows for name in row.first.outcomes)
        papers = cited([row.first.method for row in self.rows], suites)
        return Section("To cite", [List(papers, "papers")] if papers else [])


def _joined(row: Row) -> Row:
    """The row with one suite "overview" that holds every number of it."""
    runs = []
    for run in row.runs:
        numbers: dict[str, float] = {}
        for outcome in reversed(run.outcomes.values()):
            numbers |= outcome.metrics
        numbers |= {k: float(run.facts[k]) for k in ("parameters", "seconds") if run.facts.get(k) is not None}
        each = run.outcomes["calibration"].arrays if "calibration" in run.outcomes else {}
        runs.append(replace(run, outcomes={"overview": Outcome(numbers, each)}))
    return replace(row, runs=runs)


def _fact_cell(key: str, value: Any) -> Cell:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return Cell("–" if value is None else str(value))
    return Cell(written(key, value) if fact(key).meaning else f"{value:g}")


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def cited(methods: Iterable[str], suites: Iterable[str]) -> list[str]:
    """The papers behind these methods and suites, each once."""
    made = set(suites)
    found = [method_class(name).paper for name in methods]
    found += [paper for suite, paper in PAPERS.items() if suite in made]
    return list(dict.fromkeys(paper for paper in found if paper))
