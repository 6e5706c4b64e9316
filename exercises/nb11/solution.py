"""Solutions of notebook 11, one block an exercise."""


# %% 11.3
def learning_rate(step, batch, warm_up):
    goal = 0.02 * batch / 32
    if step >= warm_up:
        return goal
    return 0.02 + (goal - 0.02) * step / warm_up


# %% 11.4
def critical_batch(small, big, small_norms, big_norms):
    small_squared = sum(norm**2 for norm in small_norms) / len(small_norms)
    big_squared = sum(norm**2 for norm in big_norms) / len(big_norms)
    trace = (small_squared - big_squared) / (1 / small - 1 / big)
    signal = (big * big_squared - small * small_squared) / (big - small)
    return trace / signal


# %% 11.5
def accumulate(model, images, labels, part):
    model.zero_grad()
    total = 0.0
    for x, y in zip(images.split(part), labels.split(part), strict=True):
        loss = cross_entropy(model(x), y) * len(x) / len(images)
        loss.backward()
        total += loss.detach()
    return float(total)  # once: each reading would wait for the device


# %% 11.7
def recipe():
    def block(inputs, outputs):
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return convolution, nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)

    layers = (*block(1, 16), *block(16, 32), nn.Flatten(), nn.Linear(128, 10))
    model = nn.Sequential(*layers).to(machine.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(images, labels):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return model, step, 64
