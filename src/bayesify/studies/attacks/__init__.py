"""Attacks on a model's inputs: one gradient, one iteration, attacks as settings of it. Adding one: see `pgd`."""

from bayesify.studies.attacks.gradient import AVERAGES, input_gradient
from bayesify.studies.attacks.iteration import (
    NORMS,
    AttackRow,
    attack_curve,
    fast_sign,
    fgsm,
    iterates,
    pgd,
    success,
)

__all__ = [
    "AVERAGES",
    "NORMS",
    "AttackRow",
    "attack_curve",
    "fast_sign",
    "fgsm",
    "input_gradient",
    "iterates",
    "pgd",
    "success",
]
