"""From an equation to batches: generate a file, read it, split it, normalise it."""
