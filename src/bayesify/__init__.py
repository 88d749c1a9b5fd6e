"""bayesify: one line makes any PyTorch network Bayesian."""

import importlib
from typing import TYPE_CHECKING, Any

from bayesify import families, likelihoods, methods, moments, priors, samplers
from bayesify.divergences import kl
from bayesify.divergences.graph_size import graph_size
from bayesify.engine import History, fit, fit_members
from bayesify.engine.chains import sample_chains
from bayesify.engine.first_guess import first_guess
from bayesify.engine.search import search
from bayesify.evaluation import metrics
from bayesify.evaluation.acquisition import acquisition
from bayesify.evaluation.calibrate import calibrate
from bayesify.evaluation.conformal import conformal
from bayesify.evaluation.evaluate import evaluate, inference_modes
from bayesify.families import family
from bayesify.files.export import export
from bayesify.files.merge import merge
from bayesify.files.storage import load, save
from bayesify.likelihoods import likelihood
from bayesify.methods import (
    IVON,
    SWAG,
    DeepEnsemble,
    DensityPropagation,
    EnsemblePatching,
    Laplace,
    MCDropout,
    MonteCarloVI,
    Point,
    SparseVariationalDropout,
    ThermostatMCMC,
    VarianceNetwork,
    VariationalDropout,
)
from bayesify.model import BayesianModule, bayesify
from bayesify.moments import Moments
from bayesify.objectives import KLWarmup, Loss
from bayesify.predict.predictive import Predictive
from bayesify.priors import prior
from bayesify.samplers import SamplingWarning
from bayesify.studies import diagnostics
from bayesify.studies.diagnostics.variance import zero_mean
from bayesify.weights import where

if TYPE_CHECKING:
    from bayesify import data, nets, report, sklearn
    from bayesify.files import hub
    from bayesify.studies import attacks, compress, corruptions, explain, suites

__version__ = "0.2.0.dev0"

#: names of bf. that are loaded when they are first asked for
LATER = {
    "attacks": "bayesify.studies.attacks",
    "compress": "bayesify.studies.compress",
    "corruptions": "bayesify.studies.corruptions",
    "data": "bayesify.data",
    "explain": "bayesify.studies.explain",
    "hub": "bayesify.files.hub",
    "nets": "bayesify.nets",
    "report": "bayesify.report",
    "sklearn": "bayesify.sklearn",
    "suites": "bayesify.studies.suites",
}

__all__ = [
    "IVON",
    "SWAG",
    "BayesianModule",
    "DeepEnsemble",
    "DensityPropagation",
    "EnsemblePatching",
    "History",
    "KLWarmup",
    "Laplace",
    "Loss",
    "MCDropout",
    "Moments",
    "MonteCarloVI",
    "Point",
    "Predictive",
    "SamplingWarning",
    "SparseVariationalDropout",
    "ThermostatMCMC",
    "VarianceNetwork",
    "VariationalDropout",
    "acquisition",
    "attacks",
    "bayesify",
    "calibrate",
    "compress",
    "conformal",
    "corruptions",
    "data",
    "diagnostics",
    "evaluate",
    "explain",
    "export",
    "families",
    "family",
    "first_guess",
    "fit",
    "fit_members",
    "graph_size",
    "hub",
    "inference_modes",
    "kl",
    "likelihood",
    "likelihoods",
    "load",
    "merge",
    "methods",
    "metrics",
    "moments",
    "nets",
    "prior",
    "priors",
    "report",
    "sample_chains",
    "samplers",
    "save",
    "search",
    "sklearn",
    "suites",
    "where",
    "zero_mean",
]


def __getattr__(name: str) -> Any:
    """The module behind a name of `LATER`."""
    if name not in LATER:
        raise AttributeError(f"module 'bayesify' has no attribute {name!r}")
    return importlib.import_module(LATER[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})
