"""Predictions after calibration by one number (Guo et al. 2017), which `bf.calibrate` fits.

    classes      p_T ∝ p^(1/T) of the averaged probabilities p; T > 1 makes an overconfident model less sure
    regression   every variance times s

Labels, votes and predicted means stay as they are. A conformal rule does not: it was fitted to other predictions.
"""

import math
from dataclasses import replace
from numbers import Real

import torch

from bayesify.likelihoods import Likelihood
from bayesify.predict.predictive import Predictive


def quantity(likelihood: Likelihood) -> str:
    """What the number is called for this likelihood."""
    return "variance scale" if likelihood.task == "regression" else "temperature"


def calibrated(prediction: Predictive, value: float) -> Predictive:
    """The same prediction at temperature `value` (classes), or with all variances times `value` (regression).

    Of the uncertainty the epistemic share stays the same. Samples of classes are tempered each by itself, so their
    mean is near `probs` and not equal to it; the variance of the probabilities follows to first order.
    """
    if not isinstance(value, Real) or not 0 < value < math.inf:
        raise ValueError(f"{quantity(prediction.likelihood)}={value!r} must be positive and finite")
    if prediction.likelihood.task == "regression":
        return _scaled(prediction, value)
    classes = prediction.likelihood.classes
    p, p_t = prediction.mean, classes.tempered(prediction.mean, value)
    # ∂ p_T / ∂ p = p_T (1 − p_T) / T p (1 − p), of two classes exactly
    slope = p_t * (1 - p_t) / (value * p * (1 - p)).clamp_min(torch.finfo(p.dtype).tiny)
    per_draw = prediction.per_draw and (
        classes.tempered(prediction.per_draw[0], value, 1),
        prediction.per_draw[1],
    )
    # where all draws agree there is no spread, however steep the slope
    most = torch.minimum(slope.square() * prediction.spread, p_t * (1 - p_t))
    spread = torch.where(prediction.spread == 0, 0.0, most)
    changed = replace(prediction, mean=p_t, spread=spread, per_draw=per_draw, conformal=None)
    share = prediction.noise / prediction.entropy.clamp_min(torch.finfo(prediction.noise.dtype).tiny)
    return replace(changed, noise=share.clamp(0, 1) * changed.entropy)


def _scaled(prediction: Predictive, scale: float) -> Predictive:
    per_draw = prediction.per_draw
    if per_draw is not None:  # the draws move away from their mean, each one's noise grows
        per_draw = (prediction.mean + math.sqrt(scale) * (per_draw[0] - prediction.mean), scale * per_draw[1])
    std = math.sqrt(scale)
    law = prediction.law and prediction.law.moved((1 - std) * prediction.mean, std)
    spread, noise = scale * prediction.spread, scale * prediction.noise
    return replace(prediction, spread=spread, noise=noise, per_draw=per_draw, law=law, conformal=None)
