"""How far saliency maps are to be trusted: infidelity and sensitivity (paper 3, Fig. 4)."""

import numpy as np
import torch

from bayesify.studies.explain import infidelity, probability_of, saliency, sensitivity
from bayesify.studies.suites.calibration import thumbnails
from bayesify.studies.suites.subject import Outcome, Subject

NUM_EXAMPLES = 6


def saliency_suite(subject: Subject) -> Outcome:
    """Means over the first test images of the gradient map of the predicted class; noise std 0.1, radius 0.02."""
    subject.classifies("saliency")
    model = subject.module
    x, _ = subject.few()
    label = subject.predict(x).label
    score = probability_of(model, label, num_draws=5, seed=subject.seed)
    explained = saliency(score, x)
    infidelities = infidelity(score, x, explained, 10, 0.1, subject.generator())
    sensitivities = sensitivity(lambda z: saliency(score, z), x, 5, 0.02, subject.generator())
    metrics = {
        "infidelity": float(infidelities.double().mean()),
        "sensitivity": float(sensitivities.double().mean()),
        "num_data": float(len(x)),
    }
    arrays = {"each_infidelity": infidelities.cpu().numpy(), "each_sensitivity": sensitivities.cpu().numpy()}
    if x.dim() == 4:
        arrays["images"] = thumbnails(torch.as_tensor(subject.first(min(NUM_EXAMPLES, len(x))).inputs[:]))
        arrays["maps"] = explained[:NUM_EXAMPLES].abs().amax(1).cpu().numpy()  # (N, H, W)
        arrays["labels"] = label[:NUM_EXAMPLES].cpu().numpy()
    return Outcome(metrics, {key: np.asarray(value) for key, value in arrays.items()})
