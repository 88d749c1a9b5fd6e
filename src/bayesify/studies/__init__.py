"""What one asks of a trained model: attacks, corruptions, explanations, compression, diagnostics; suites of them."""
