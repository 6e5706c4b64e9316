"""What trainplan predicted for varied inputs: a golden file, so that no number changes
unseen.

`python -m test_trainplan.predictions` calculates the outputs in predictions.json
anew from its inputs. For one more prediction, add a line with empty outputs first. Keep
the file if each difference is one that you expected.
"""

import dataclasses
import json
from pathlib import Path

from trainplan import costs, schedule
from trainplan.cluster import (
    SOFTWARE,
    Cluster,
    Layout,
    best_layout,
    bill,
    goodput,
    model,
    network,
    step,
)
from trainplan.costs import collectives

FILE = Path(__file__).parent / "predictions.json"


def planned_step(
    model_name,
    device,
    gpus,
    batch,
    layout,
    sizes=(),
    cluster=(),
    network_bytes_per_s=None,
):
    """A step on a cluster. `sizes` and `cluster` change fields of the model and of the
    Cluster.
    """
    shape = dataclasses.replace(model(model_name), **dict(sizes))
    fields = dict(cluster)
    if network_bytes_per_s is not None:
        fields["inter"] = network(network_bytes_per_s)
    if "torus" in fields:
        fields["torus"] = tuple(fields["torus"])
    software = SOFTWARE[layout.get("software", "torch")]
    return step(
        shape,
        Cluster(device, gpus, **fields),
        Layout(**{**layout, "software": software}),
        batch,
    )


def predict_step(**inputs):
    planned = planned_step(**inputs)
    seconds = {f"{part} [s]": value for part, value in planned.parts.items() if value}
    memory = {
        f"{purpose} [bytes]": value
        for purpose, value in planned.memory.items()
        if value
    }
    low_s, high_s = planned.interval_s
    return {
        "step [s]": planned.seconds,
        "at least [s]": low_s,
        "at most [s]": high_s,
        "MFU [share]": planned.mfu,
        "memory [bytes]": planned.memory_bytes,
        **seconds,
        **memory,
    }


def predict_search(model_name, device, gpus, batch, software):
    best = best_layout(
        model(model_name), Cluster(device, gpus), batch, software=SOFTWARE[software]
    )
    return {
        f"step with {best.layout.short} [s]": best.step.seconds,
        "tried [layouts]": best.tried,
    }


def predict_cost(**inputs):
    cost = costs.training_step(**inputs)
    return {
        "work [FLOP]": cost.flop,
        "traffic [bytes]": cost.n_bytes,
        "memory [bytes]": cost.memory.total_bytes,
    }


def predict_schedule(name, sizes, times, placement="loop", blocking=False):
    order = getattr(schedule, name)(*sizes)
    played = schedule.simulate(order, **times, placement=placement, blocking=blocking)
    return {
        "makespan [s]": played.makespan_s,
        "period [s]": played.period_s,
        "bubble [share]": played.bubble,
        "peak [activations]": max(played.peak_activations),
    }


def predict_overlap(link, **inputs):
    overlapped = schedule.overlap(**inputs, link=costs.Link(*link))
    return {"total [s]": overlapped.total_s, "exposed [s]": overlapped.exposed_s}


def predict_collective(function, sizes, links, options=()):
    of_links = [costs.Link(*link) for link in links]
    return {
        "time [s]": getattr(collectives, function)(*sizes, *of_links, **dict(options))
    }


def predict_run(of, tokens, failure, usd_per_gpu_hour):
    """A run with failures, and its bill."""
    planned = planned_step(**of)
    useful = goodput(planned.cluster.gpus, **failure)
    cost = bill(planned, tokens, usd_per_gpu_hour, goodput=useful.share)
    return {
        "goodput [share]": useful.share,
        "interval [s]": useful.interval_s,
        "run [days]": cost.days,
        "cost [US$]": cost.usd,
        "energy [kWh]": cost.kwh,
    }


KINDS = {
    "step": predict_step,
    "search": predict_search,
    "cost": predict_cost,
    "schedule": predict_schedule,
    "overlap": predict_overlap,
    "collective": predict_collective,
    "run": predict_run,
}


def predictions():
    """The golden file's rows: kind, inputs and outputs."""
    return json.loads(FILE.read_text(encoding="utf-8"))


def predict(row):
    return KINDS[row["kind"]](**row["inputs"])


def main():
    lines = []
    for row in predictions():
        outputs = {name: _rounded(value) for name, value in predict(row).items()}
        lines.append(json.dumps({**row, "outputs": outputs}))
    FILE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def _rounded(value):
    """A number to nine digits, which is far more than the test compares."""
    return float(f"{value:.9g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
