"""Training: the loop, checkpoints, devices. It knows the face of a model and no method."""

from bayesify.engine.fit import fit
from bayesify.engine.history import History

__all__ = ["History", "fit"]
