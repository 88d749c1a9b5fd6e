"""Is the sampler sampling? Temperatures, thermostats, convergence, and what to change."""

from bayesify.diagnostics import phase_figures
from bayesify.diagnostics.convergence import autocorrelation, ess, function_values, rhat
from bayesify.diagnostics.curvature import kappa
from bayesify.diagnostics.monitor import Monitor, Row
from bayesify.diagnostics.phase_transition import PhaseRecorder, PhaseTransition
from bayesify.diagnostics.plot import plot
from bayesify.diagnostics.sampler_record import SamplerRecorder
from bayesify.diagnostics.short_run import tune
from bayesify.diagnostics.tuning import Suggestion, suggest
from bayesify.diagnostics.variance import log_alpha, zero_mean
from bayesify.diagnostics.verdict import verdict

__all__ = [
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
    "phase_figures",
    "plot",
    "rhat",
    "suggest",
    "tune",
    "verdict",
    "zero_mean",
]
