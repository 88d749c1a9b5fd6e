"""Thresholds, sets and intervals of MAPIE and TorchCP: writes tests/evaluation/conformal_reference.json.

    python -m venv peers && peers/bin/pip install torch mapie tqdm && peers/bin/pip install --no-deps torchcp
    peers/bin/python benchmarks/conformal_reference.py --reference  # seconds; without bayesify
    python benchmarks/conformal_reference.py --digits               # coverage tables: 2 minutes, with bayesify

The probabilities, means and stds are made up; the peers get them as the output of a model. Where conventions differ:

    randomised aps    MAPIE draws one u for an example and takes off u p_y: u here is 1 − u there. TorchCP draws one
                      for every class of a prediction, and its sets may skip a class: compared without chance
    intervals         TorchCP's quantile intervals may cross; here both ends are then the middle
"""

import argparse
import importlib.util
import json
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

PATH = Path(__file__).parents[1] / "tests" / "evaluation" / "conformal_reference.json"
NUM, NUM_CALIBRATION, CLASSES = 150, 97, 5
COVERAGE = 0.8
SHOWN = (
    *("aps_0.8/covered", "aps_0.9/covered", "aps_0.95/covered", "aps_0.9/covered_worst", "aps_0.9/set_size"),
    *("lac_0.9/covered", "by_class_0.9/covered", "frost_3/covered", "rotated_30/covered"),
)


def made_up() -> dict[str, Any]:
    """Probabilities with targets, and means and stds with targets."""
    random = np.random.RandomState(0)
    probs = random.dirichlet(np.full(CLASSES, 0.7), NUM).clip(1e-4).round(6)
    probs[:, -1] = (1 - probs[:, :-1].sum(1)).round(6)
    targets = [int(random.choice(CLASSES, p=(p.clip(0) ** 0.7) / (p.clip(0) ** 0.7).sum())) for p in probs]
    mean, std = random.randn(NUM).round(6), (0.2 + random.rand(NUM)).round(6)
    y = (mean + 1.3 * std * random.randn(NUM)).round(6)
    return {
        "num_calibration": NUM_CALIBRATION,
        "probs": probs.tolist(),
        "targets": targets,
        **{name: values.tolist() for name, values in (("mean", mean), ("std", std), ("y", y))},
    }


class Given:
    """A fitted scikit-learn model whose predictions are rows of a table; inputs are the rows' numbers."""

    def __init__(self, table: np.ndarray, kind: str) -> None:
        self.table, self._estimator_type, self.n_features_in_ = table, kind, 1
        self.classes_ = np.arange(CLASSES)

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=self._estimator_type, target_tags=TargetTags(required=True))

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, x: np.ndarray, y: np.ndarray) -> "Given":
        return self

    def predict_proba(self, x: np.ndarray) -> np.ndarray:
        return self.table[x[:, 0].astype(int)]

    def predict(self, x: np.ndarray) -> np.ndarray:
        found = self.table[x[:, 0].astype(int)]
        return found.argmax(1) if found.ndim > 1 else found


def mapie_classes(data: dict[str, Any]) -> list[dict[str, Any]]:
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores import APSConformityScore, LACConformityScore

    x, y, n = np.arange(NUM)[:, None], np.array(data["targets"]), NUM_CALIBRATION
    model = Given(np.array(data["probs"]), "classifier")
    found = []
    for score, made, seed, options in (
        ("lac", LACConformityScore(), 0, {}),
        ("aps", APSConformityScore(), 3, {"include_last_label": "randomized"}),
    ):
        peer = SplitConformalClassifier(
            model, confidence_level=COVERAGE, conformity_score=made, prefit=True, random_state=seed
        )
        peer.conformalize(x[:n], y[:n])
        _, sets = peer.predict_set(x[n:], conformity_score_params=options)
        threshold = float(peer._mapie_classifier.quantiles_[0])
        case = as_case("mapie", score, score, [threshold], sets[:, :, 0])
        if score == "aps":  # both halves are drawn from this seed anew
            case["u"] = (1 - np.random.RandomState(seed).uniform(size=n)).tolist()
        found.append(case)
    return found


def torchcp_classes(data: dict[str, Any]) -> list[dict[str, Any]]:
    from torchcp.classification.predictor import ClassConditionalPredictor, SplitPredictor
    from torchcp.classification.score import APS, LAC, RAPS

    probs, y, n = (
        torch.tensor(data["probs"], dtype=torch.float64),
        torch.tensor(data["targets"]),
        NUM_CALIBRATION,
    )
    plain, steps = {"score_type": "identity"}, {"penalty": 0.05, "kreg": 2}
    scores = {
        "lac": (LAC(**plain), {}),
        "aps": (APS(randomized=False, **plain), {"seed": None}),
        "raps": (RAPS(randomized=False, **steps, **plain), {"seed": None, "penalty": 0.05, "num_free": 2}),
    }
    found = []
    for by_class in (False, True):
        for name, (score, options) in scores.items():
            peer = (ClassConditionalPredictor if by_class else SplitPredictor)(score)
            peer.calculate_threshold(probs[:n], y[:n], 1 - COVERAGE)
            sets = peer.predict_with_logits(probs[n:])
            q = peer.q_hat.double().reshape(-1).tolist()
            found.append(
                as_case(
                    "torchcp", name + by_class * "-by-class", name, q, np.array(sets) == 1, by_class, options
                )
            )
    return found


def as_case(
    peer: str,
    name: str,
    score: str,
    thresholds: list[float],
    sets: np.ndarray,
    by_class: bool = False,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    classes = [np.flatnonzero(row).tolist() for row in sets]
    return {"peer": peer, "name": name, "score": score, "coverage": COVERAGE, "by_class": by_class,
            "options": options or {}, "thresholds": thresholds, "sets": classes}  # fmt: skip


def regressions(data: dict[str, Any]) -> list[dict[str, Any]]:
    from mapie.conformity_scores import ResidualNormalisedScore
    from mapie.regression import SplitConformalRegressor
    from torchcp.regression.predictor import SplitPredictor
    from torchcp.regression.score import ABS, CQR

    mean, std, y = (np.array(data[key]) for key in ("mean", "std", "y"))
    x, n = np.arange(NUM)[:, None], NUM_CALIBRATION
    cases = []
    normalised = ResidualNormalisedScore(Given(std, "regressor"), prefit=True)
    for name, score in (("absolute", "absolute"), ("std", normalised)):
        peer = SplitConformalRegressor(
            Given(mean, "regressor"), confidence_level=COVERAGE, conformity_score=score, prefit=True
        )
        peer.conformalize(x[:n], y[:n])
        _, ends = peer.predict_interval(x[n:])
        width = ends[0, 1, 0] - ends[0, 0, 0]
        threshold = float(width / 2 / (std[n] if name == "std" else 1))
        cases.append(("mapie", name, threshold, ends[:, :, 0]))
    quantile = torch.special.ndtri(torch.tensor((1 + COVERAGE) / 2, dtype=torch.float64)).item()
    tables = {"absolute": (ABS(), mean[:, None]),
              "quantile": (CQR(), np.stack([mean - quantile * std, mean + quantile * std], 1))}  # fmt: skip
    for name, (score, table) in tables.items():
        peer = SplitPredictor(score)
        values = torch.tensor(table, dtype=torch.float64)
        scores = peer.calculate_score(values[:n], torch.tensor(y[:n])[:, None] if name == "absolute" else
                                      torch.tensor(y[:n]))  # fmt: skip
        q = peer._calculate_conformal_value(scores, 1 - COVERAGE)
        ends = peer.generate_intervals(values[n:], q)
        cases.append(("torchcp", name, float(q), np.array(ends[:, 0])))
    return [
        {
            "peer": peer,
            "name": name,
            "score": name,
            "coverage": COVERAGE,
            "thresholds": [q],
            "intervals": e.tolist(),
        }
        for peer, name, q, e in cases
    ]


def without_extras() -> None:
    """TorchCP without its rooms of graphs and language models, and without torchsort, which a loss of its takes."""
    found = importlib.util.find_spec("torchcp")
    assert found is not None
    package, sorts = types.ModuleType("torchcp"), types.ModuleType("torchsort")
    package.__path__ = list(found.submodule_search_locations or ())
    sorts.soft_rank = sorts.soft_sort = None  # type: ignore[attr-defined]
    sys.modules |= {"torchcp": package, "torchsort": sorts}


def write_reference() -> None:
    without_extras()
    warnings.simplefilter("ignore")
    data = made_up()
    classification = [*mapie_classes(data), *torchcp_classes(data)]
    data |= {"classification": classification, "regression": regressions(data)}
    PATH.write_text(json.dumps(data))
    for case in (*data["classification"], *data["regression"]):
        sizes = [len(s) for s in case["sets"]] if "sets" in case else [b - a for a, b in case["intervals"]]
        print(f"{case['peer']:8} {case['name']:14} thresholds {[round(q, 6) for q in case['thresholds']]}"
              f" mean size {np.mean(sizes):.3f}")  # fmt: skip


def print_digits(seeds: int) -> None:
    """The suite conformal on the digits, a quarter of them for calibration: mean and standard error over seeds."""
    import bayesify as bf
    from bayesify.data import Loader, load
    from bayesify.studies.suites import Subject, run_suites

    print("method  " + "".join(f"{key:>22}" for key in SHOWN))
    for method in ("point", "mc_vi", "emp"):
        found = []
        for seed in range(seeds):
            ds = load("digits").with_validation(0.25, seed=seed)
            torch.manual_seed(seed)
            net = bf.nets.make("mlp", num_outputs=10, input_shape=(1, 8, 8))
            model = bf.bayesify(net, method)
            loader = Loader(ds.train, 64, shuffle=True, seed=seed, normalise=ds.normalisation)
            bf.fit(model, loader, seed=seed, progress=False)
            subject = Subject(model, ds.test, ds.normalisation, ds.val)
            numbers = run_suites(subject, ["conformal"])["conformal"].metrics
            found.append([numbers[key] for key in SHOWN])
        values = np.array(found)
        error = values.std(0, ddof=1) / seeds**0.5
        print(
            f"{method:8}"
            + "".join(f"{m:14.3f} ± {e:.3f}" for m, e in zip(values.mean(0), error, strict=True))
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", action="store_true", help="write the peers' figures")
    parser.add_argument("--digits", action="store_true", help="print coverage tables on the digits")
    parser.add_argument("--seeds", type=int, default=3)
    chosen = parser.parse_args()
    if chosen.reference:
        write_reference()
    if chosen.digits:
        print_digits(chosen.seeds)
