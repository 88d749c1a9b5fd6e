"""Which parameters are random, and how random weights get into an unmodified network."""

from bayesify.weights import where
from bayesify.weights.calls import Call, Slot, as_arguments, as_call, call_with
from bayesify.weights.observing.watch import Watch
from bayesify.weights.selection import Selection, select
from bayesify.weights.slots import find_slots
