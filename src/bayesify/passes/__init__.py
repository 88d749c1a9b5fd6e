"""The three ways to evaluate a random network: draw, local (and flipout), moments."""
