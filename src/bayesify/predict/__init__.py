"""Predictions: averaging a network over draws, and `Predictive`, what comes out."""
