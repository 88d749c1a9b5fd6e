"""Posteriors over the weights of a network."""

from bayesify.posteriors.base import Posterior, pick_member
from bayesify.posteriors.chain.chain import Chain
from bayesify.posteriors.factorized import SAMPLINGS, Factorized
from bayesify.posteriors.members import Members
from bayesify.posteriors.patched.assignments import ASSIGNMENTS
from bayesify.posteriors.patched.components import Components
from bayesify.posteriors.point import PointMass
from bayesify.weights.calls import Call, without_guards
