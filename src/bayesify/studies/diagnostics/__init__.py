"""Is the sampler sampling, is one pass right? Temperatures, thermostats, convergence, moments, and what to change."""

from bayesify.evaluation.convergence import function_values
from bayesify.samplers.convergence import autocorrelation, ess, rhat
from bayesify.studies.diagnostics import phase_figures
from bayesify.studies.diagnostics.arviz_data import to_arviz
from bayesify.studies.diagnostics.curvature import kappa
from bayesify.studies.diagnostics.moment_check import moment_check, relative_width
from bayesify.studies.diagnostics.moment_verdict import MomentCheck
from bayesify.studies.diagnostics.monitor import Monitor, Row
from bayesify.studies.diagnostics.phase_transition import PhaseRecorder, PhaseTransition
from bayesify.studies.diagnostics.plot import plot
from bayesify.studies.diagnostics.sampler_record import SamplerRecorder
from bayesify.studies.diagnostics.tuning import Suggestion, suggest, tune
from bayesify.studies.diagnostics.variance import log_alpha, zero_mean
from bayesify.studies.diagnostics.verdict import verdict

__all__ = [
    "MomentCheck",
    "Monitor",
    "PhaseRecorder",
    "PhaseTransition",
    "Row",
    "SamplerRecorder",
    "Suggestion",
    "autocorrelation",
    "ess",
    "function_values",
    "kappa",
    "log_alpha",
    "moment_check",
    "phase_figures",
    "plot",
    "relative_width",
    "rhat",
    "suggest",
    "to_arviz",
    "tune",
    "verdict",
    "zero_mean",
]
