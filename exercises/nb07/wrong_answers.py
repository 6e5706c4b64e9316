"""Plausible wrong answers of notebook 07: number -> (answer, words the check must say, misconception)."""

import io
import math
import threading

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from exercises.nb07 import slow_script


# 07.1
def clip(kernels, start, end):
    return [(max(a, start), min(b, end)) for a, b in kernels if b > start and a < end]


def merged(kernels):
    busy, covered = 0.0, float("-inf")
    for a, b in sorted(kernels):
        busy += max(b - max(a, covered), 0.0)
        covered = max(covered, b)
    return busy


def forgets_the_longest(kernels, start, end):
    """Remembers the end of the last kernel, not the latest end."""
    busy, covered = 0.0, start
    for a, b in sorted(clip(kernels, start, end)):
        busy += max(b - max(a, covered), 0.0)
        covered = b
    return busy / (end - start)


def needs_their_order(kernels, start, end):
    busy, covered = 0.0, start
    for a, b in clip(kernels, start, end):
        busy += max(b - max(a, covered), 0.0)
        covered = max(covered, b)
    return busy / (end - start)


def to_the_last_kernel(kernels, start, end):
    inside = clip(kernels, start, end)
    return merged(inside) / (max(b for _, b in inside) - min(a for a, _ in inside))


def right_share(kernels, start, end):
    return merged(clip(kernels, start, end)) / (end - start)


# 07.2
def reads_each(job, steps):
    return sum(job.step(job.prepare()).item() for _ in range(steps)) / steps


def floats_each(job, steps):
    total = 0.0
    for _ in range(steps):
        total += float(job.step(job.prepare()))
    return total / steps


def prints_each(job, steps):
    total = 0.0
    for _ in range(steps):
        loss = job.step(job.prepare())
        f"{loss:.3f}"
        total = total + loss
    return total.item() / steps


def watches_for_the_best(job, steps):
    total, best = 0.0, float("inf")
    for _ in range(steps):
        loss = job.step(job.prepare())
        if loss < best:
            best = loss
        total = total + loss
    return total.item() / steps


def synchronizes_each(job, steps):
    total = 0.0
    for _ in range(steps):
        total = total + job.step(job.prepare())
        job.device.synchronize()
    return total.item() / steps


def prepares_all_first(job, steps):
    batches = [job.prepare() for _ in range(steps)]
    return sum(job.step(batch) for batch in batches).item() / steps


def one_batch_for_all(job, steps):
    batch = job.prepare()
    return sum(job.step(batch) for _ in range(steps)).item() / steps


def one_step_fewer(job, steps):
    return sum(job.step(job.prepare()) for _ in range(max(steps - 1, 1))).item() / steps


def last_loss(job, steps):
    for _ in range(steps):
        loss = job.step(job.prepare())
    return loss.item()


def total_loss(job, steps):
    return sum(job.step(job.prepare()) for _ in range(steps)).item()


def every_fifth(job, steps):
    total = 0.0
    for step in range(steps):
        loss = job.step(job.prepare())
        if step % 5 == 0:
            loss.item()
        total = total + loss
    return total.item() / steps


def judging_each(wrong):
    """Adds the losses on the device, and does to each of them what makes a GPU wait."""

    def answer(job, steps):
        total = 0.0
        for _ in range(steps):
            loss = job.step(job.prepare())
            wrong(loss)
            total = total + loss
        return total.item() / steps

    return answer


def stops_at_nan(loss):
    if loss != loss:
        raise FloatingPointError


def stops_at_infinity(loss):
    assert torch.isfinite(loss), "the loss is infinite"


def reads_one_behind(job, steps):
    total, before = 0.0, None
    for _ in range(steps):
        loss = job.step(job.prepare())
        if before is not None:
            total += before.item()
        before = loss
    return (total + before.item()) / steps


def new_device(job, steps):
    mean = reads_each(job, steps)
    job.device = type(job.device)(launch_s=1e-6, compile_s=0.0)
    return mean


def no_times(job, steps):
    job.prepare_s = job.step_s = 0.0
    return reads_each(job, steps)


def not_read(job, steps):
    return sum(job.step(job.prepare()) for _ in range(steps)) / steps


def reads_the_last_alone(job, steps):
    total = 0.0
    for _ in range(steps):
        loss = job.step(job.prepare())
        total = total + loss
    loss.item()
    return total / steps


def endless(job, steps):
    while True:
        job.step(job.prepare())


# 07.5
def gains(change):
    def answer(load, step, factor, workers):
        before = load + step
        right = {
            "faster device": before / (load + step / factor),
            "workers": before / max(load / workers, step),
            "both": before / max(load / workers, step / factor),
        }
        return right | change(load, step, factor, workers)

    return answer


# 07.5b
def read_off(**changed):
    """The right answers, but for those that are given, `_` for a space in a name."""
    right = {
        "idle": 46.9,
        "device waits for": "launches",
        "host waits for": "kernels",
        "memory level": "L2",
        "full wave": 1280,
        "occupancy limit": "grid size",
        "fewest sectors": 8,
        "first change": "coalesce loads",
        "conflicts": 93.9,
        "warps wait for": "data",
    }
    return right | {name.replace("_", " "): given for name, given in changed.items()}


# 07.6
def planted(*faults):
    def train(model, images, labels, device, batch, lr):
        return slow_script.train(model, images, labels, device, batch, lr, faults=faults)

    return train


def single_passes_in_evaluation(model, images, labels, device, batch, lr):
    """Mended but for the evaluation, whose images go through the network alone."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    x, y = (
        (torch.from_numpy(images).to(device) / 255 - 0.5) / 0.5,
        torch.from_numpy(labels).to(device),
    )
    total = torch.zeros((), device=device)
    for part, wanted in zip(x.split(batch), y.split(batch), strict=True):
        optimizer.zero_grad()
        loss = cross_entropy(model(part), wanted)
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(part)
    with torch.no_grad():
        right = torch.cat([model(image).argmax(1) for image in x.split(1)]) == y
    return {"loss": float(total) / len(x), "accuracy": float(right.double().mean())}


def by_way_of_a_list(model, images, labels, device, batch, lr):
    numbers = torch.tensor(list(bytes(images)), dtype=torch.uint8).reshape(images.shape)
    return slow_script.train(model, np.asarray(numbers.numpy()), labels, device, batch, lr)


def variant(
    *,
    steps=None,
    shuffle=False,
    size=None,
    average=False,
    twice=False,
    skip_accuracy=False,
    rate=1.0,
    log=0,
):
    """A mended script of its own, with something changed that the result or the work shows."""

    def train(model, images, labels, device, batch, lr):
        optimizer = torch.optim.SGD(model.parameters(), lr=rate * lr, momentum=0.9)
        x, y = (
            (torch.from_numpy(images).to(device) / 255 - 0.5) / 0.5,
            torch.from_numpy(labels).to(device),
        )
        if shuffle:
            x, y = x.flip(0), y.flip(0)
        total = torch.zeros((), device=device)
        parts = list(zip(x.split(size or batch), y.split(size or batch), strict=True))[:steps]
        for i, (images, wanted) in enumerate(parts * (2 if twice else 1)):
            optimizer.zero_grad()
            loss = cross_entropy(model(images), wanted)
            loss.backward()
            optimizer.step()
            total += loss.detach() * (1 if average else len(images))
            if log and i % log == 0:
                loss.cpu()
        with torch.no_grad():
            right = (
                model(x[:7] if skip_accuracy else x).argmax(1)
                == y[: 7 if skip_accuracy else None]
            ).double()
        return {
            "loss": float(total) / (len(parts) if average else len(x)),
            "accuracy": float(right.mean()),
        }

    return train


def prepares_all_in_each_step(model, images, labels, device, batch, lr):
    """Mended, but for a preparation of all images in each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
    y, total = torch.from_numpy(labels).to(device), torch.zeros((), device=device)
    for start in range(0, len(images), batch):
        x = (torch.from_numpy(images).to(device) / 255 - 0.5) / 0.5
        rows = slice(start, start + batch)
        optimizer.zero_grad()
        loss = cross_entropy(model(x[rows]), y[rows])
        loss.backward()
        optimizer.step()
        total += loss.detach() * len(y[rows])
    with torch.no_grad():
        right = model(x).argmax(1) == y
    return {"loss": float(total) / len(x), "accuracy": float(right.double().mean())}


def keeps_graphs(add):
    """Mended, but for a sum of losses that `add` makes with their graphs."""

    def train(model, images, labels, device, batch, lr):
        optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9)
        x, y = (
            (torch.from_numpy(images).to(device) / 255 - 0.5) / 0.5,
            torch.from_numpy(labels).to(device),
        )
        total, losses = 0.0, []
        for part, wanted in zip(x.split(batch), y.split(batch), strict=True):
            optimizer.zero_grad()
            loss = cross_entropy(model(part), wanted)
            loss.backward()
            optimizer.step()
            total = add(total, loss * len(part), losses)
        with torch.no_grad():
            right = model(x).argmax(1) == y
        total = torch.stack(losses).sum() if losses else total
        return {"loss": total.item() / len(x), "accuracy": float(right.double().mean())}

    return train


def keeps_by_hook(part):
    """Mended, but for what `part` takes out of each batch's logits, which is kept."""

    def train(model, *given):
        kept = []
        hook = model.register_forward_hook(lambda module, x, logits: kept.append(part(logits)))
        try:
            return planted()(model, *given)
        finally:
            hook.remove()

    return train


def wide_classifier(model, *given):
    """Mended but for the classifier, which stays in float64."""
    model.classifier.double()
    hook = model.classifier.register_forward_pre_hook(lambda module, x: (x[0].double(),))
    try:
        return variant()(model, *given)
    finally:
        hook.remove()
        model.float()


def reading_by(read):
    """Mended, but for a read of each batch's logits."""

    def train(model, images, labels, device, batch, lr):
        hook = model.register_forward_hook(lambda module, given, logits: [read(logits)].clear())
        try:
            return planted()(model, images, labels, device, batch, lr)
        finally:
            hook.remove()

    return train


def in_another_thread(*args):
    found = []
    worker = threading.Thread(target=lambda: found.append(planted()(*args)))
    worker.start()
    worker.join()
    return found[0]


def trains_nothing(model, images, labels, device, batch, lr):
    return {"loss": 2.3, "accuracy": 0.1}


def only_loss(*args):
    return planted()(*args)["loss"]


def in_percent(*args):
    found = planted()(*args)
    return found | {"accuracy": 100 * found["accuracy"]}


REMAINS = "1 of 6 faults remains:\n(1) "
WRONG = {
    "07.1": [
        (
            lambda k, a, b: sum(y - x for x, y in clip(k, a, b)) / (b - a),
            "count once",
            "intervals-add-up",
        ),
        (
            lambda k, a, b: sum(y - x for x, y in k) / (b - a),
            "outside the window",
            "intervals-add-up",
        ),
        (lambda k, a, b: merged(k) / (b - a), "outside the window", "intervals-add-up"),
        (lambda k, a, b: 1 - right_share(k, a, b), "idle share", "upside-down"),
        (lambda k, a, b: 100 * right_share(k, a, b), "in percent", "wrong-unit"),
        (
            lambda k, a, b: merged(clip(k, a, b)),
            "divide it by the window's length",
            "wrong-denominator",
        ),
        (forgets_the_longest, "a long kernel with short ones during it", "intervals-add-up"),
        (needs_their_order, "in any order", "right-for-one-case"),
        (to_the_last_kernel, "From the window's start to its end", "wrong-denominator"),
        (lambda k, a, b: len(clip(k, a, b)) / 10, "what we expect", "hard-coded"),
        (lambda k, a, b: 0.5, "what we expect", "hard-coded"),
        (
            lambda k, a, b: right_share(k, a, b) if k else None,
            "got nothing",
            "zero-never-happens",
        ),
    ],
    "07.2": [
        (reads_each, "The host read a loss", "reading-is-free"),
        (floats_each, "The host read a loss", "reading-is-free"),
        (prints_each, "The host read a loss", "reading-is-free"),
        (watches_for_the_best, "The host read a loss", "reading-is-free"),
        (every_fifth, "The host read a loss", "reading-is-free"),
        (synchronizes_each, "did not work at the same time", "works-in-turns"),
        (prepares_all_first, "did not work at the same time", "works-in-turns"),
        (
            one_batch_for_all,
            "was not prepared, or was trained on before",
            "changes-the-training",
        ),
        (one_step_fewer, "steps were queued", "off-by-one"),
        (last_loss, "Is it the mean of all losses?", "other-formula"),
        (total_loss, "x what we expect", "sum-for-mean"),
        (lambda job, steps: 1.5, "0 steps were queued", "hard-coded"),
        (endless, "batches are enough", "attacks-the-check"),
        (not_read, "still on the device", "result-of-another-kind"),
        (reads_the_last_alone, "still on the device", "result-of-another-kind"),
        (judging_each(stops_at_nan), "The host read a loss", "reading-is-free"),
        (judging_each(stops_at_infinity), "The host read a loss", "reading-is-free"),
        (
            judging_each(lambda loss: math.isnan(loss)),
            "The host read a loss",
            "reading-is-free",
        ),
        (judging_each(lambda loss: loss.cpu()), "The host read a loss", "reading-is-free"),
        (judging_each(lambda loss: loss.to("cpu")), "The host read a loss", "reading-is-free"),
        (
            judging_each(lambda loss: loss.detach().numpy()),
            "The host read a loss",
            "reading-is-free",
        ),
        (judging_each(lambda loss: loss.tolist()), "The host read a loss", "reading-is-free"),
        (judging_each(lambda loss: loss.nonzero()), "The host read a loss", "reading-is-free"),
        (judging_each(lambda loss: int(loss)), "The host read a loss", "reading-is-free"),
        (
            judging_each(lambda loss: torch.equal(loss, loss)),
            "The host read a loss",
            "reading-is-free",
        ),
        (
            judging_each(lambda loss: print(loss, file=io.StringIO())),
            "The host read a loss",
            "reading-is-free",
        ),
        (
            judging_each(lambda loss: np.asarray(loss)),
            "The host read a loss",
            "reading-is-free",
        ),
        (
            judging_each(lambda loss: loss.data.item()),
            "The host read a loss",
            "reading-is-free",
        ),
        (judging_each(lambda loss: loss[loss > 0]), "The host read a loss", "reading-is-free"),
        (judging_each(lambda loss: loss.unique()), "The host read a loss", "reading-is-free"),
        (
            judging_each(lambda loss: torch.save(loss, io.BytesIO())),
            "The host read a loss",
            "reading-is-free",
        ),
        (judging_each(lambda loss: max(loss, 3.0)), "The host read a loss", "reading-is-free"),
        (reads_one_behind, "The host read a loss", "reading-is-free"),
        (new_device, "changed the job's device or its times", "attacks-the-check"),
        (no_times, "changed the job's device or its times", "attacks-the-check"),
    ],
    "07.5": [
        (
            gains(lambda a, s, f, w: {"faster device": f}),
            "faster device",
            "part-speedup-is-whole",
        ),
        (
            gains(lambda a, s, f, w: {"faster device": (a + s) / max(a, s / f)}),
            "faster device",
            "in-turn-or-at-once",
        ),
        (
            gains(lambda a, s, f, w: {"workers": (a + s) / (a / w + s)}),
            "workers",
            "in-turn-or-at-once",
        ),
        (
            gains(lambda a, s, f, w: {"workers": (a + s) / max(a, s)}),
            "workers",
            "other-formula",
        ),
        (gains(lambda a, s, f, w: {"workers": float(w)}), "workers", "part-speedup-is-whole"),
        (
            gains(lambda a, s, f, w: {"both": (a + s) / (a / w + s / f)}),
            "the slower part takes all the time",
            "in-turn-or-at-once",
        ),
        (
            gains(lambda a, s, f, w: {"both": (a + s) / (a + s / f) * (a + s) / max(a / w, s)}),
            "both",
            "gain-has-no-order",
        ),
        (
            gains(lambda a, s, f, w: {"both": max(a / w, s / f) / (a + s)}),
            "both",
            "upside-down",
        ),
        (
            lambda a, s, f, w: (a + s) / max(a / w, s),
            "Expected a dict",
            "result-of-another-kind",
        ),
        (lambda a, s, f, w: {"faster device": 1.0}, "missing", "result-of-another-kind"),
    ],
    "07.5b": [
        (read_off(idle=53.1), "the busy share", "upside-down"),
        (read_off(idle=0.469), "asked for in percent", "wrong-unit"),
        (read_off(idle=92.1), "divided by the range", "wrong-denominator"),
        (
            read_off(device_waits_for="synchronization"),
            "which one takes nearly all of it",
            "counter-by-its-name",
        ),
        (
            read_off(device_waits_for="memory"),
            "cudaFree came before it",
            "bigger-is-better",
        ),
        (
            read_off(host_waits_for="copies"),
            "begins when all work before it is",
            "counter-by-its-name",
        ),
        (
            read_off(host_waits_for="memory"),
            "begins when all work before it is",
            "bigger-is-better",
        ),
        (read_off(memory_level="DRAM"), "has the same number", "counter-by-its-name"),
        (read_off(memory_level="L1/TEX"), "has the same number", "bigger-is-better"),
        (read_off(full_wave=16), "all SMs together are asked for", "half-the-work-counted"),
        (
            read_off(full_wave=21 * 80),
            "By registers alone that many would fit",
            "occupancy-by-one-number",
        ),
        (read_off(full_wave=512), "these blocks are Waves Per SM of it", "other-formula"),
        (
            read_off(occupancy_limit="registers"),
            "no block limit keeps warps off an SM",
            "occupancy-by-one-number",
        ),
        (read_off(fewest_sectors=4), "float64 has 8", "wrong-unit"),
        (read_off(fewest_sectors=32), "if it lies in a row", "neighbors-apart"),
        (
            read_off(first_change="fewer registers"),
            "far from the best value",
            "symptom-for-cause",
        ),
        (
            read_off(first_change="pad the tile"),
            "far from the best value",
            "symptom-for-cause",
        ),
        (read_off(conflicts=6.15), "left without conflicts", "upside-down"),
        (read_off(conflicts=1527), "in the column of `tiled`", "wrong-denominator"),
        (
            read_off(warps_wait_for="arithmetic"),
            "The longest row names it",
            "counter-by-its-name",
        ),
        (
            read_off(warps_wait_for="shared memory"),
            "The longest row names it",
            "counter-by-its-name",
        ),
        (read_off(warps_wait_for="HBM"), "expected one of", "result-of-another-kind"),
        (0.46, "Expected a dict", "result-of-another-kind"),
    ],
    "07.6": [
        (planted(*slow_script.FAULTS), "6 of 6 faults remain:", "reading-is-free"),
        (planted("anomaly mode"), REMAINS + "backward runs operators", "other-formula"),
        (
            planted("one by one"),
            REMAINS + "44 backward passes for 8 steps",
            "python-loop-per-item",
        ),
        (
            planted("float64"),
            REMAINS + "convolutions or matrix products calculate on numbers of 8",
            "double-is-free",
        ),
        (
            planted("evaluation"),
            REMAINS + "8 images go forward without backward",
            "python-loop-per-item",
        ),
        (planted("reading back"), REMAINS + "the host asked for a value", "reading-is-free"),
        (planted("preparation"), REMAINS + "before the network", "python-loop-per-item"),
        (
            single_passes_in_evaluation,
            REMAINS + "44 passes classify 44 images",
            "python-loop-per-item",
        ),
        (by_way_of_a_list, REMAINS + "before the network", "python-loop-per-item"),
        (variant(steps=4), "24 images were trained on", "does-less-work"),
        (variant(twice=True), "88 images were trained on", "changes-the-training"),
        (variant(size=44), "went through the network together", "changes-the-training"),
        (variant(size=4), "it learns something else", "changes-the-training"),
        (variant(shuffle=True), "it learns something else", "changes-the-training"),
        (variant(rate=1.05), "it learns something else", "changes-the-training"),
        (variant(average=True), "loss is", "mean-of-unequal-parts"),
        (variant(skip_accuracy=True), "7 images were classified besides", "does-less-work"),
        (
            variant(log=1),
            "(1) the host asked for a value at 9 moments in 8 steps",
            "reading-is-free",
        ),
        (
            wide_classifier,
            REMAINS + "convolutions or matrix products calculate on numbers of 8",
            "double-is-free",
        ),
        (
            reading_by(lambda logits: logits[logits > 0]),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: logits.masked_select(logits > 0)),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: logits.argmax(1).unique()),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: logits.to(device="cpu")),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: repr(logits)),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: torch.allclose(logits, logits)),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: bool(logits.isnan().any())),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (
            reading_by(lambda logits: torch.save(logits, io.BytesIO())),
            REMAINS + "the host asked for a value",
            "reading-is-free",
        ),
        (prepares_all_in_each_step, REMAINS + "before the network", "python-loop-per-item"),
        (
            keeps_graphs(lambda total, loss, losses: total + loss),
            "keeps the graph of every step",
            "other-formula",
        ),
        (
            keeps_graphs(lambda total, loss, losses: losses.append(loss) or total),
            "keeps the graph of every step",
            "other-formula",
        ),
        (
            keeps_by_hook(lambda logits: logits),
            "keeps the graph of every step",
            "other-formula",
        ),
        (
            keeps_by_hook(lambda logits: logits.grad_fn),
            "keeps the graph of every step",
            "other-formula",
        ),
        (in_another_thread, "in this thread", "result-of-another-kind"),
        (trains_nothing, "No image went through", "hard-coded"),
        (
            only_loss,
            "Expected a dict with the keys loss and accuracy",
            "result-of-another-kind",
        ),
        (in_percent, "0 to 1", "wrong-unit"),
    ],
}
