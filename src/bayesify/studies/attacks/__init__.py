"""Attacks on a model's inputs: one gradient, one iteration, the attacks as settings of it. Adding one: a file here."""

from bayesify.studies.attacks.curve import AttackRow, attack_curve, success
from bayesify.studies.attacks.fast_sign import fast_sign
from bayesify.studies.attacks.fgsm import fgsm
from bayesify.studies.attacks.gradient import AVERAGES, input_gradient
from bayesify.studies.attacks.iteration import NORMS, iterates
from bayesify.studies.attacks.pgd import pgd

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
