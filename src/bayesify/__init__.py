"""bayesify: one line makes any PyTorch network Bayesian."""

import importlib
from typing import TYPE_CHECKING, Any

from bayesify import likelihoods, moments, samplers
from bayesify.divergences import kl
from bayesify.divergences.graph_size import graph_size
from bayesify.engine import History, fit, fit_members
from bayesify.engine.chains import sample_chains
from bayesify.engine.search import search
from bayesify.evaluation.evaluate import evaluate
from bayesify.evaluation.inference_modes import inference_modes
from bayesify.families import family
from bayesify.files.export import export
from bayesify.files.merge import merge
from bayesify.files.storage import load, save
from bayesify.likelihoods import likelihood
from bayesify.methods import (
    DeepEnsemble,
    DensityPropagation,
    EnsemblePatching,
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
from bayesify.studies import attacks, compress, diagnostics
from bayesify.studies.diagnostics.variance import zero_mean
from bayesify.weights import where

if TYPE_CHECKING:
    from bayesify import nets

__version__ = "0.1.0"

__all__ = [
    "BayesianModule",
    "DeepEnsemble",
    "DensityPropagation",
    "EnsemblePatching",
    "History",
    "KLWarmup",
    "Loss",
    "MCDropout",
    "Moments",
    "MonteCarloVI",
    "Point",
    "Predictive",
    "SparseVariationalDropout",
    "ThermostatMCMC",
    "VarianceNetwork",
    "VariationalDropout",
    "attacks",
    "bayesify",
    "compress",
    "diagnostics",
    "evaluate",
    "export",
    "fit",
    "fit_members",
    "family",
    "graph_size",
    "inference_modes",
    "kl",
    "likelihood",
    "likelihoods",
    "load",
    "merge",
    "moments",
    "nets",
    "prior",
    "sample_chains",
    "samplers",
    "save",
    "search",
    "where",
    "zero_mean",
]


def __getattr__(name: str) -> Any:
    """`bf.nets`, loaded when it is first asked for."""
    if name == "nets":
        return importlib.import_module("bayesify.nets")
    raise AttributeError(f"module 'bayesify' has no attribute {name!r}")
