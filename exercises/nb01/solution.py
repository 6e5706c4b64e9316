"""Solutions of notebook 01, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 01.1
def fp32_peak(cores, boost_hz):
    """Float32 peak in FLOP/s of `cores` cores that each finish one multiply-add per cycle."""
    return cores * 2 * boost_hz


# %% 01.3
def matmul_intensity(n, element_bytes):
    """FLOP per byte of multiplying two n x n matrices, each element crossing memory once."""
    return 2 * n**3 / (3 * n**2 * element_bytes)


# %% 01.4
def step_bytes(params, saved_activation_bytes, batch):
    """Bytes of a float32 training step with Adam."""
    per_parameter = 4 * (1 + 1 + 2)  # weight, gradient, Adam's two averages
    return per_parameter * params + saved_activation_bytes * batch


# %% 01.6
def least(job):
    """The name of this machine if it will do, else of the device of least power that will, else None."""
    passing = [one for one in judged[job] if one.fits and one.step_s <= limits_s[job]]
    passing.sort(key=lambda one: 0 if one.device is this_machine else one.device.tdp_w)
    return passing[0].device.name if passing else None


choice = {job: least(job) for job in judged}
