"""Which parameters are random, and how random weights get into an unmodified network."""

from bayesify.weights import where
from bayesify.weights.observing.watch import Watch
from bayesify.weights.selection import Selection, Weight, select
from bayesify.weights.slots import Slot, call_with, find_slots

__all__ = ["Selection", "Slot", "Watch", "Weight", "call_with", "find_slots", "select", "where"]
