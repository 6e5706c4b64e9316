"""Solutions of notebook 07, one block an exercise."""

# ruff: noqa: F821 - each block runs in the notebook, after the cells above it


# %% 07.1
def busy_share(kernels, start_s, end_s):
    busy_s = 0.0
    covered_s = start_s
    for first_s, last_s in sorted(kernels):
        # what another kernel covers already, and what lies outside the window, adds nothing
        busy_s += max(min(last_s, end_s) - max(first_s, covered_s), 0.0)
        covered_s = max(covered_s, last_s)
    return busy_s / (end_s - start_s)


# %% 07.2
def mean_loss(job, steps):
    total = 0.0
    for _ in range(steps):
        total = total + job.step(job.prepare())  # an order: the sum stays on the device
    return total.item() / steps


# %% 07.5
def gains(load_s, step_s, factor, workers):
    before_s = load_s + step_s
    faster_s = step_s / factor
    loaded_s = load_s / workers
    return {
        "faster device": before_s / (load_s + faster_s),
        "workers": before_s / max(loaded_s, step_s),  # at the same time: the longer one counts
        "both": before_s / max(loaded_s, faster_s),
    }


# %% 07.5b
answers = {
    # of tiny
    "idle": 100 * (1 - 1000 / 1010 * 1_830_493 / 3_414_647),  # 10 of the kernels warm up
    "device waits for": "launches",  # they take nearly all of the range
    # of the program: darts
    "host waits for": "kernels",  # theirs is about the time in cudaMemcpy
    # of its kernel: throw_dart
    "memory level": "L2",
    "full wave": 512 / 0.40,
    "occupancy limit": "grid size",
    # of transpose
    "fewest sectors": 32 * 8 / 32,
    "first change": "coalesce loads",
    "conflicts": 100 * 16_012_462 / 17_061_038,
    # of matmul
    "warps wait for": "data",
}


# %% 07.6
def mended(model, images, labels, device, batch, lr):
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    # once, all images together; uint8 / 255 is float32
    x = (torch.from_numpy(images).to(device) / 255 - 0.5) / 0.5
    y = torch.from_numpy(labels).to(device)
    total = torch.zeros((), device=device)
    for part in zip(x.split(batch), y.split(batch), strict=True):
        optimizer.zero_grad()
        loss = cross_entropy(model(part[0]), part[1])
        loss.backward()
        optimizer.step()
        total += len(part[0]) * loss.detach()  # stays on the device, and keeps no graph alive
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == y).double().mean()
    return {"loss": float(total) / len(x), "accuracy": float(accuracy)}
