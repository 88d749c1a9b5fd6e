"""Chains of a sampler: the posterior, what is kept of its draws, their files and their way to the device."""
