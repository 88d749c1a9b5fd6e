"""Patched networks: tensors chosen among components in each forward, with their choices, KL and statistics."""
