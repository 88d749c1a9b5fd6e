"""Models and predictions as files: save, load, merge, export."""
