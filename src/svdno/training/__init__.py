"""From a data set to a trained surrogate: the surrogate, what is minimised, the loop, the files."""
