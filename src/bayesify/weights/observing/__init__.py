"""Watching a network while it is called: what it uses, what it keeps, and what would see a draw too late."""
