"""A regression's prediction in other units of the target."""

from dataclasses import replace

from torch import Tensor

from bayesify.predict.predictive import Predictive


def in_units(prediction: Predictive, shift: Tensor, scale: Tensor) -> Predictive:
    """From t to shift + scale · t: means are moved, variances multiplied by scale²."""
    shift, scale = shift.to(prediction.mean), scale.to(prediction.mean)
    square, law, draws = scale.square(), prediction.law, prediction.per_draw
    return replace(
        prediction,
        mean=shift + scale * prediction.mean,
        spread=square * prediction.spread,
        noise=square * prediction.noise,
        per_draw=draws and (shift + scale * draws[0], square * draws[1]),
        law=law and law.moved(shift.expand_as(law.shift), scale.expand_as(law.scale)),
        conformal=prediction.conformal and prediction.conformal.scaled(scale),
    )
