"""Training: the loop, checkpoints, devices. It knows the face of a model and no method."""

from bayesify.engine.fit import fit
from bayesify.engine.groups import split_processes
from bayesify.engine.history import History
from bayesify.engine.members import fit_members

__all__ = ["History", "fit", "fit_members", "split_processes"]
