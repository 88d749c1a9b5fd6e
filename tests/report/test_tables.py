"""Tables in every format; rows of several seeds; the best and its significance; corruption errors."""

import csv
import io
import math

import numpy as np
import pytest
from report_data import evaluation, several
from rich.console import Console
from scipy import stats

import bayesify as bf
from bayesify.evaluation.statistics import paired_t_test
from bayesify.report import Cell, Column, Report, Table
from bayesify.report.build import cited
from bayesify.report.comparison import column_cells, comparison, grouped, with_corruption_errors
from bayesify.studies.suites import Evaluation, Outcome


def small() -> Table:
    columns = [Column("run", "run"), Column("ece", "ECE (15 bins)", "lower"), Column("note_x", "a|b")]
    rows = [
        [Cell("first_one"), Cell("1.00 %", 0.01, best=True), Cell("50 % & more")],
        [Cell("second"), Cell("1.10 %", 0.011, tied=True), Cell("–")],
    ]
    return Table("Made up", columns, rows, ["Two runs."])


def test_markdown() -> None:
    lines = small().markdown().splitlines()
    assert lines[0] == "**Made up**"
    assert lines[2] == r"| run | ECE (15 bins) ↓ | a\|b |"
    assert lines[4] == "| first_one | **1.00 %** | 50 % & more |"
    assert "1.10 % ≈" in lines[5]
    assert lines[-1] == "Two runs."


def test_csv_has_plain_numbers() -> None:
    rows = list(csv.DictReader(io.StringIO(small().csv())))
    assert [float(row["ece"]) for row in rows] == [0.01, 0.011]
    assert rows[0]["run"] == "first_one"


def test_latex_is_escaped_and_booktabs() -> None:
    text = small().latex()
    assert r"\textbf{1.00 \%}" in text
    assert r"first\_one" in text
    assert r"50 \% \& more" in text
    assert r"1.10 \% $\approx$" in text
    assert text.count(r"\\") == 3
    for word in (r"\toprule", r"\midrule", r"\bottomrule", r"\caption{Made up. Two runs.}"):
        assert word in text


def test_terminal() -> None:
    console = Console(width=80, file=io.StringIO())
    console.print(small().terminal())
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "1.00 % *" in text
    assert "Two runs." in text


# -- rows ---------------------------------------------------------------------------------------------------
def test_seeds_of_one_setting_are_one_row() -> None:
    rows = grouped(several())
    assert [row.label for row in rows] == ["plain <net>", "vdp", "atmc-0"]
    assert [len(row.runs) for row in rows] == [1, 2, 1]
    table = comparison(rows, "calibration", ["accuracy", "ece", "unheard"], "Made up")
    assert [c.header for c in table.columns] == ["run", "accuracy", "ECE (15 bins)"]
    assert table.rows[1][1].text == "93.50 ± 0.50 %"
    assert table.rows[1][2].value == pytest.approx(0.025)
    assert "Runs in each row: 1 to 2; mean ± standard error." in table.notes


def test_equal_labels_are_numbered() -> None:
    other = evaluation("a", "point")
    first = Evaluation("a", "point", {**other.facts, "settings": {"x": 1}}, other.outcomes)
    assert [row.label for row in grouped([first, other])] == ["a (1)", "a (2)"]


def test_the_best_is_compared_over_examples() -> None:
    rows = grouped([evaluation("good", "vdp", 0, 0.95), evaluation("bad", "atmc", 0, 0.5)])
    cells, used = column_cells(rows, "calibration", "nll")
    assert used == {"examples"}
    assert cells[0].best
    assert not cells[1].tied
    p = paired_t_test(*(row.first.array("calibration", "each_nll") for row in rows)).p
    assert p < 0.05
    same = grouped([evaluation("good", "vdp", 0, 0.95), evaluation("fine", "atmc", 0, 0.945)])
    cells, _ = column_cells(same, "calibration", "accuracy")
    assert cells[0].best
    assert cells[1].tied


def runs(method: str, values: list[float]) -> list[Evaluation]:
    return [
        Evaluation(f"{method}-{seed}", method, {"seed": seed, "settings": method, "name": method},
                   {"calibration": Outcome({"ece": value, "num_bins": 15.0})})
        for seed, value in enumerate(values)
    ]  # fmt: skip


def test_several_seeds_are_paired_by_seed() -> None:
    rows = grouped(
        [*runs("a", [0.01, 0.02, 0.03]), *runs("b", [0.06, 0.07, 0.08]), *runs("c", [0.011, 0.03, 0.02])]
    )
    cells, used = column_cells(rows, "calibration", "ece")
    assert used == {"seeds"}
    assert [cell.best for cell in cells] == [True, False, False]
    assert [cell.tied for cell in cells] == [False, False, True]
    table = comparison(rows, "calibration", ["ece"], "Made up")
    assert "runs of the same seed" in table.notes[-2]
    assert "fewer than 5 seeds" in table.notes[-1]
    assert "Runs in each row: 3" in table.notes[0]


def test_two_seeds_of_two_methods_as_scipy_has_them() -> None:
    values = {"a": [0.0263, 0.0151], "b": [0.0301, 0.0229]}
    rows = grouped([run for method, numbers in values.items() for run in runs(method, numbers)])
    table = comparison(rows, "calibration", ["ece"], "Made up")
    (line,) = [line for line in csv.DictReader(io.StringIO(table.csv())) if line["run"] == "b"]
    assert float(line["ece"]) == pytest.approx(np.mean(values["b"]))
    assert float(line["ece_error"]) == pytest.approx(stats.sem(values["b"]))
    assert table.rows[1][1].text == "2.65 ± 0.36 %"
    assert table.rows[1][1].tied == (stats.ttest_rel(values["a"], values["b"]).pvalue > 0.05)
    closer = {"a": [0.0263, 0.0151], "b": [0.0301, 0.0188]}  # nearly the same difference in both seeds
    assert stats.ttest_rel(closer["a"], closer["b"]).pvalue < 0.05
    cells, _ = column_cells(grouped([*runs("a", closer["a"]), *runs("b", closer["b"])]), "calibration", "ece")
    assert not cells[1].tied


def test_without_a_test_the_note_says_so() -> None:
    rows = grouped([*runs("a", [0.01]), *runs("b", [0.06])])
    assert "no test" in comparison(rows, "calibration", ["ece"], "Made up").notes[-1]


def test_different_numbers_of_bins_are_said() -> None:
    eight = Evaluation("x", "x", {}, {"calibration": Outcome({"ece": 0.1, "num_bins": 8.0})})
    table = comparison(grouped([*runs("a", [0.01]), eight]), "calibration", ["ece"], "Made up")
    assert table.columns[1].header == "ECE"
    assert any("different numbers of bins: [8, 15]" in note for note in table.notes)


def test_a_metric_that_is_not_finite_is_a_dash() -> None:
    rows = grouped([*runs("a", [0.01]), *runs("b", [math.nan])])
    assert comparison(rows, "calibration", ["ece"], "Made up").rows[1][1].text == "–"


def test_corruption_errors_are_relative_to_the_plain_network() -> None:
    rows = with_corruption_errors(grouped(several()))
    assert rows[0].first.metric("corruption", "mce_corruption") == pytest.approx(1)
    assert rows[1].first.metric("corruption", "mce_corruption") < 1
    assert rows[2].first.metric("corruption", "mce_corruption") > 1
    error = 1 - rows[1].first.array("corruption", "accuracy")
    base = 1 - rows[0].first.array("corruption", "accuracy")
    expected = np.mean(error.sum(1) / base.sum(1))
    assert rows[1].first.metric("corruption", "mce_corruption") == pytest.approx(expected)


def test_the_overview_joins_the_suites() -> None:
    table = Report(several()).overview()
    keys = [column.key for column in table.columns]
    assert keys[:5] == ["run", "accuracy", "nll", "brier", "ece"]
    assert {"noise/auroc", "corrupted/accuracy", "rotated_30/accuracy", "parameters", "seconds"} <= set(keys)
    assert "AUROC, noise" in [column.header for column in table.columns]


def test_papers_are_cited_once() -> None:
    found = cited(["emp", "ecmp", "point", "vdp"], ["calibration", "corruption"])
    assert len(found) == 4
    assert bf.EnsemblePatching.paper in found
    assert cited(["point"], []) == []


def test_nothing_to_report_is_refused() -> None:
    with pytest.raises(ValueError, match="a report needs at least one run"):
        Report([])
