"""How good predictions are: `bf.evaluate`, metrics, ways to predict side by side, runs compared."""
