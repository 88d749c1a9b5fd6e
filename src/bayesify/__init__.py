"""bayesify: one line makes any PyTorch network Bayesian."""

from bayesify import likelihoods, moments, samplers
from bayesify.divergences import kl
from bayesify.engine import History, fit, fit_members
from bayesify.evaluation import evaluate
from bayesify.families import family
from bayesify.likelihoods import likelihood
from bayesify.merging import merge
from bayesify.methods import DeepEnsemble, MonteCarloVI, Point
from bayesify.module import BayesianModule, bayesify
from bayesify.moments import Moments
from bayesify.objectives import KLWarmup, Loss
from bayesify.predictive import Predictive
from bayesify.priors import prior
from bayesify.storage import load, save
from bayesify.weights import where

__version__ = "0.1.0"

__all__ = [
    "BayesianModule",
    "DeepEnsemble",
    "History",
    "KLWarmup",
    "Loss",
    "Moments",
    "MonteCarloVI",
    "Point",
    "Predictive",
    "bayesify",
    "evaluate",
    "fit",
    "fit_members",
    "family",
    "kl",
    "likelihood",
    "likelihoods",
    "load",
    "merge",
    "moments",
    "prior",
    "samplers",
    "save",
    "where",
]
