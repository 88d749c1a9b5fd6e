"""Smaller networks from a posterior: pruning by size or by signal-to-noise, sparse ensembles, and what they cost."""

from bayesify.studies.compress.pruning import SCORES, Pruned, prune, pruning_curve, sparsity
from bayesify.studies.compress.sparse_ensemble import (
    SparsityPoint,
    sparsify,
    sparsify_by_log_alpha,
    sparsity_curve,
)

__all__ = [
    "SCORES",
    "Pruned",
    "SparsityPoint",
    "prune",
    "pruning_curve",
    "sparsify",
    "sparsify_by_log_alpha",
    "sparsity",
    "sparsity_curve",
]
