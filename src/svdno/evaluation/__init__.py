"""How good a prediction is."""
