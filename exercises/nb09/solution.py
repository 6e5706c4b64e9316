"""Solutions of notebook 09, one block an exercise."""


# %% 09.1
def decode(sign, exponent, fraction):
    bias = 2 ** (len(exponent) - 1) - 1
    power = int(exponent, 2)
    part = int(fraction, 2) / 2 ** len(fraction)
    hidden = 1 if power > 0 else 0  # subnormal: no 1 before the point
    size = (hidden + part) * 2.0 ** (max(power, 1) - bias)
    return -size if sign == "1" else size


# %% 09.2
def total(numbers, add):
    sums = list(numbers)
    while len(sums) > 1:
        pairs = [add(a, b) for a, b in zip(sums[::2], sums[1::2], strict=False)]
        sums = pairs + sums[2 * len(pairs) :]  # of an odd number, the last one waits
    return sums[0] if sums else 0.0


# %% 09.3
def scaled_step(loss, optimizer, scale, good):
    optimizer.zero_grad()
    (scale * loss).backward()
    weights = [w for group in optimizer.param_groups for w in group["params"]]
    gradients = [w.grad for w in weights if w.grad is not None]
    for gradient in gradients:
        gradient /= scale
    if not all(torch.isfinite(gradient).all() for gradient in gradients):
        return scale / 2, 0
    optimizer.step()
    return (2 * scale, 0) if good + 1 == 100 else (scale, good + 1)


# %% 09.5
def master_step(weights, masters, lr):
    with torch.no_grad():
        for weight, master in zip(weights, masters, strict=True):
            master -= lr * weight.grad.float()
            weight.copy_(master)
