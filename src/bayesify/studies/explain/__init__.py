"""Which pixels a prediction rests on, and how far such a map is to be trusted (paper 3, Fig. 4)."""

from bayesify.studies.explain.quality import infidelity, sensitivity
from bayesify.studies.explain.saliency import Score, probability_of, saliency

__all__ = ["Score", "infidelity", "probability_of", "saliency", "sensitivity"]
