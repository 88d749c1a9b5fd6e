"""Made-up evaluations of three methods, two seeds of one of them."""

import numpy as np

from bayesify.studies.corruptions import COMMON
from bayesify.studies.suites import Evaluation, Outcome
from bayesify.studies.suites.conformal import SHIFTS

M, STEPS = np.array([1, 10, 100]), np.arange(5.0)
KL = {f"{name}_{what}": M * 1.0 for name in ("repar", "direct") for what in ("error", "stored", "seconds")}
#: what only some methods have
OF_METHODS = {
    "vdp": {
        "kl": Outcome(
            {"kl_value": 5.0, "num_weights": 10.0, "repar/kl_error": 0.1, "direct/kl_error": 0.2},
            {**KL, "repar_draws": M, "direct_draws": M, "tensor": np.array("0.weight"),
             "reference": np.array("exact")},
        ),
        "variance": Outcome(
            {"deterministic/accuracy": 0.1, "ensemble/accuracy": 0.9, "log_alpha": 3.0},
            {"edges": np.arange(-2.0, 3.0), "threshold": np.array(1.5), "kappa_0.weight": np.array([1, 2, 3, 4])},
        ),
        "phase": Outcome({}, dict.fromkeys(("epoch", "log_alpha", "deterministic", "ensemble"), STEPS)),
    },
    "atmc": {
        "chain": Outcome({"rhat": 1.01, "ess": 9.0}, {"loss": np.ones((2, 5)) * STEPS}),
        "sampler": Outcome(
            {"kinetic_temperature": 1.02},
            {"step": STEPS, "kinetic": STEPS, "autocorrelation": STEPS, "lag": STEPS},
        ),
    },
}  # fmt: skip


def evaluation(label: str, method: str, seed: int = 0, quality: float = 0.9, classes: int = 4) -> Evaluation:
    """An evaluation with every array that a report draws."""
    random = np.random.RandomState(len(label) + 7 * seed)
    correct = (np.arange(200) < 200 * quality).astype(np.float32)
    nll = np.where(correct > 0, 0.1, 2.0).astype(np.float32) + 0.01 * random.rand(200).astype(np.float32)
    bins = 15
    size = np.zeros(bins)
    size[7:] = 25
    confidence = (np.arange(bins) + 0.5) / bins
    images = random.randint(0, 256, (3, 8, 8, 1)).astype(np.uint8)
    probs = random.dirichlet(np.ones(classes), 3).astype(np.float32)
    strip = {"images": images, "probs": probs, "targets": np.array([0, 1, 2]), "index": np.arange(3)}
    thresholds = np.linspace(0, 1, 11)
    calibration = Outcome(
        {"accuracy": quality, "nll": float(nll.mean()), "brier": 0.2, "ece": 0.02 + 0.01 * seed, "mce": 0.1,
         "aurc": 0.01, "tempered/ece": 0.01, "temperature": 1.3, "num_bins": 15.0, "num_draws": 10.0},
        {"bin_size": size, "bin_confidence": confidence * (size > 0), "bin_accuracy": 0.9 * confidence * (size > 0),
         "coverage": np.linspace(0.1, 1, 10), "risk": np.linspace(0, 0.1, 10),
         "set_threshold": thresholds, "set_size": 1 - 0.3 * thresholds, "set_accuracy": 0.9 + 0.05 * thresholds,
         "each_accuracy": correct, "each_nll": nll,
         **{f"{kind}_{key}": value for kind in ("uncertain", "wrong") for key, value in strip.items()}},
    )  # fmt: skip
    accuracy = np.clip(quality - 0.05 * np.arange(5) * np.ones((len(COMMON), 1)) - 0.01 * seed, 0, 1)
    levels = np.arange(4.0)
    outcomes = {
        "calibration": calibration,
        "conformal": Outcome(
            {"aps_0.9/covered": 0.9 + 0.01 * seed, "aps_0.9/set_size": 1.2, "lac_0.9/covered": 0.9,
             **{f"{name}/covered": 0.8 for name in SHIFTS}, "num_calibration": 100.0},
            {"nominal": np.array([0.8, 0.9, 0.95]), "aps_covered": np.array([0.81, 0.9, 0.94]),
             "aps_set_size": np.array([0.9, 1.2, 1.5])},
        ),
        "ood": Outcome(
            {"noise/auroc": 0.8, "noise/aupr": 0.7, "noise/fpr95": 0.5, "noise/auroc_agreement": 0.75},
            {"edges": np.linspace(0, 1.4, 6), "inside": np.full(5, 0.2), "outside_noise": np.full(5, 0.2)},
        ),
        "corruption": Outcome(
            {"corrupted/accuracy": float(accuracy.mean()), "clean/accuracy": quality, "clean/ece": 0.02,
             "corrupted/ece": 0.1, "num_bins": 15.0},
            {"accuracy": accuracy, "ece": 1 - accuracy, "nll": 1 - accuracy,
             "clean_error": np.array(1 - quality - 0.01)},
        ),
        "shift": Outcome(
            {"rotated_30/accuracy": 0.5, "num_bins": 15.0},
            {"degrees": levels, "snr_db": levels,
             **{f"{k}_{m}": levels / 4 for k in ("rotated", "noisy") for m in ("accuracy", "entropy")}},
        ),
        "adversarial": Outcome(
            {"fgsm_0.1/accuracy": 0.4},
            {"eps": levels, **{f"{a}_{m}": levels / 4 for a in ("fgsm", "pgd") for m in ("accuracy", "entropy")}},
        ),
        "saliency": Outcome(
            {"infidelity": 0.01, "sensitivity": 0.2},
            {"images": images, "maps": random.rand(3, 8, 8), "labels": np.array([0, 1, 2])},
        ),
        "compression": Outcome({"pruned_90/accuracy": 0.6}, {"share": levels / 4, "accuracy": 1 - levels / 4}),
    }  # fmt: skip
    outcomes |= OF_METHODS.get(method, {})
    facts = {"seed": seed, "name": method, "parameters": 1000, "seconds": 1.5, "data": "made up",
             "settings": {"method": method}}  # fmt: skip
    return Evaluation(label, method, facts, outcomes)


def several() -> list[Evaluation]:
    return [
        evaluation("plain <net>", "point", 0, 0.9),
        evaluation("vdp-0", "vdp", 0, 0.93),
        evaluation("vdp-1", "vdp", 1, 0.94),
        evaluation("atmc-0", "atmc", 0, 0.6),
    ]
