"""Numbers as the paper published them, to stand beside measured ones; never averaged or tested with those.

Koren et al., AAAI 2026: the authors' data, code and hardware (one L40), ten seeds.
"""

REFERENCE = "SVD-NO"  # the method that others are compared with

METHODS = (REFERENCE, "DeepONet", "FNO", "U-NO", "MPNN", "PINO", "U-Net")

# Mean relative L2 error in percent, in the order of METHODS; – where there is none.
_ERRORS = {
    "shallow-water": "0.37 1.11 0.49 0.52 0.50 0.46 10.93",
    "allen-cahn": "0.06 16.53 0.08 0.30 0.33 0.08 68.93",
    "diffusion-sorption": "0.10 0.11 0.11 0.11 0.29 0.11 12.24",
    "diffusion-reaction": "0.33 0.61 0.39 0.40 0.39 0.43 6.70",
    "darcy": "2.55 4.91 2.35 2.02 – 3.40 50.20",
}
ERRORS = {name: dict(zip(METHODS, row.split(), strict=True)) for name, row in _ERRORS.items()}

# Half widths of the 95 % confidence interval of SVD-NO.
HALF_WIDTHS = {
    "shallow-water": ".042",
    "allen-cahn": ".007",
    "diffusion-sorption": ".002",
    "diffusion-reaction": ".010",
    "darcy": ".030",
}

# Ablations by their name in a table, in the order they are shown in.
ABLATIONS = ("dense", "mercer", "no-penalty", "exact", "per-layer")
ABLATION_ERRORS = {
    "shallow-water": {"dense": "0.99", "mercer": "0.87", "no-penalty": "0.76"},
    "allen-cahn": {"dense": "0.49", "mercer": "0.99", "no-penalty": "0.84"},
    "diffusion-sorption": {"dense": "0.11", "mercer": "0.13", "no-penalty": "0.11"},
    "diffusion-reaction": {"dense": "0.88", "mercer": "0.54", "no-penalty": "0.51"},
}

# Spatial variability β of the data sets.
VARIABILITY = {
    "darcy": 0.0174,
    "diffusion-reaction": 0.0293,
    "diffusion-sorption": 0.0019,
    "allen-cahn": 0.1027,
    "shallow-water": 0.0954,
}

# Seconds per epoch and L_ortho after training.
SECONDS_PER_EPOCH = {
    "diffusion-reaction": {REFERENCE: "17.64", "dense": "85.73"},
    "diffusion-sorption": {REFERENCE: "2.32", "dense": "176.19"},
    "allen-cahn": {REFERENCE: "4.87", "dense": "74.31"},
    "shallow-water": {REFERENCE: "22.36", "dense": "374.75"},
}
ORTHOGONALITY = {
    "shallow-water": "4.5e-6",
    "allen-cahn": "2.3e-5",
    "diffusion-sorption": "1.4e-7",
    "diffusion-reaction": "1.8e-5",
    "darcy": "3.4e-5",
}


def find_error(equation: str, label: str, name: str = "") -> str | None:
    """The published error of a method or an ablation in percent, with its interval; None where there is none."""
    error = ERRORS.get(equation, {}).get(label) or ABLATION_ERRORS.get(equation, {}).get(name)
    if error is None or error == "–":
        return None
    return f"{error} ± {HALF_WIDTHS[equation]}" if label == REFERENCE else error


def find_improvement(equation: str) -> float | None:
    """The published improvement of SVD-NO over the best of the other methods, in percent."""
    if equation not in ERRORS:
        return None
    ours, *others = (float(error) for error in ERRORS[equation].values() if error != "–")
    return 100 * (min(others) - ours) / min(others)
