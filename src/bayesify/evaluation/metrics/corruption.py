"""Errors on corrupted inputs relative to a reference model (Hendrycks and Dietterich; paper 2, D.4 corrected).

Errors are 1 − accuracy, (corruptions, severities); clean errors are single numbers.

CE_c  = Σ_s E_cs / Σ_s E_cs^ref                                       mCE  = mean over corruptions
rCE_c = Σ_s (E_cs − E_clean) / Σ_s (E_cs^ref − E_clean^ref)           rmCE = mean over corruptions
The clean error counts once per severity, and the reference's own clean error stands below the line.
"""

from torch import Tensor


def corruption_errors(error: Tensor, reference: Tensor) -> Tensor:
    """CE of each corruption, (corruptions,): 1 is as good as the reference, smaller is better."""
    _same_shape(error, reference)
    return error.double().sum(-1) / reference.double().sum(-1)


def relative_corruption_errors(
    error: Tensor, clean: float | Tensor, reference: Tensor, clean_reference: float | Tensor
) -> Tensor:
    """rCE of each corruption, (corruptions,): how much worse than clean, against the reference's."""
    _same_shape(error, reference)
    return (error.double() - clean).sum(-1) / (reference.double() - clean_reference).sum(-1)


def mean_corruption_error(error: Tensor, reference: Tensor) -> Tensor:
    """mCE; "MCE" is the maximum calibration error, something else."""
    return corruption_errors(error, reference).mean()


def relative_mean_corruption_error(
    error: Tensor, clean: float | Tensor, reference: Tensor, clean_reference: float | Tensor
) -> Tensor:
    """rmCE."""
    return relative_corruption_errors(error, clean, reference, clean_reference).mean()


def _same_shape(error: Tensor, reference: Tensor) -> None:
    if error.shape != reference.shape:
        raise ValueError(
            f"error {tuple(error.shape)} and reference {tuple(reference.shape)} must cover the same "
            f"corruptions and severities"
        )
