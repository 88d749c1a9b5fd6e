"""Accuracy and entropy under attacks with growing strength."""

from typing import Any

import numpy as np

from bayesify.studies.suites.subject import Outcome, Subject

EPS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3)


def adversarial_suite(subject: Subject) -> Outcome:
    """FGSM and PGD (10 steps, L∞) on the first test images; eps in standard deviations of the inputs."""
    from bayesify.studies.attacks import fgsm, pgd

    subject.classifies("adversarial")
    model = subject.module
    x, y = subject.few()
    bounds = (float(x.min()), float(x.max()))
    arrays = {"eps": np.array(EPS)}
    for name, attack in (("fgsm", fgsm), ("pgd", pgd)):
        accuracy, entropy = [], []
        for eps in EPS:
            options: dict[str, Any] = {"num_draws": 5, "generator": subject.generator(), "bounds": bounds}
            moved = x if eps == 0 else attack(model, x, y, eps=eps, **options)
            prediction = subject.predict(moved)
            accuracy.append(float((prediction.label.flatten() == y.flatten()).double().mean()))
            entropy.append(float(prediction.entropy.double().mean()))
        arrays |= {f"{name}_accuracy": np.array(accuracy), f"{name}_entropy": np.array(entropy)}
    metrics = {
        f"{name}_0.1/accuracy": float(arrays[f"{name}_accuracy"][EPS.index(0.1)]) for name in ("fgsm", "pgd")
    }
    return Outcome({**metrics, "num_data": float(len(x))}, arrays)
