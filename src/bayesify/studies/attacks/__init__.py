"""Attacks on a model's inputs: one gradient, one iteration, attacks as settings of it. Adding one: see named.py."""

from bayesify.studies.attacks.curve import AttackRow, attack_curve, success
from bayesify.studies.attacks.gradient import AVERAGES, input_gradient
from bayesify.studies.attacks.iteration import NORMS, iterates
from bayesify.studies.attacks.named import fast_sign, fgsm, pgd

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
