"""The cluster model compared with published steps: one row a run, predicted beside published, with the errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from labkit.core.arguments import lookup
from labkit.core.parameters import checked
from labkit.core.units import GIGA, TERA
from labkit.plan.cluster.constants import CONSTANTS, Constants
from labkit.plan.cluster.hardware import Cluster, network
from labkit.plan.cluster.layout import Layout
from labkit.plan.cluster.step_prediction import Step, step
from labkit.plan.costs.transformers import Transformer
from labkit.plan.published import Agreement, Compared, table

# Sequences a micro-batch and chunks a pipeline rank, by billions of parameters, which the table doesn't print.
# Source: NVIDIA/Megatron-LM, examples/sc21/run_table_1.sh (commit 79a3bb6b); overlapped gradients where DDP=torch.
_SC21 = {
    "1.7": (16, 1), "3.6": (16, 1), "7.5": (16, 1), "18.4": (8, 1), "39.1": (4, 1), "76.1": (2, 3), "145.6": (2, 2),
    "310.1": (1, 2), "529.6": (1, 3), "1008.0": (1, 1),
}  # fmt: skip


def _counts(row: Mapping[str, str], *columns: str) -> list[int]:
    return [int(row[column]) for column in columns]


def megatron(constants: Constants = CONSTANTS) -> Agreement[Step]:
    """Narayanan et al. 2021, table 1: FLOP/s a GPU, everything recomputed, attention unfused, 80 GB A100s."""
    rows = []
    for row in table("megatron_table1"):
        micro_batch, chunks = _SC21[row["params_b"]]
        layers, hidden, heads, vocab, seq = _counts(row, "layers", "hidden", "heads", "vocab", "seq_len")
        model = Transformer(layers, hidden, heads, vocab, seq, fused_attention=False, dropout=True)
        data, tensor, pipeline, gpus, batch = _counts(row, "dp_derived", "tp", "pp", "gpus", "batch_seqs")
        layout = Layout(
            data, tensor, pipeline, chunks, 0, micro_batch, "full", False, "mixed float16", overlap=pipeline == 1
        )
        made = step(model, Cluster("A100 SXM4 80GB", gpus), layout, batch, constants=constants)
        rows.append(
            Compared(f"{row['params_b']}B", made.hardware_flop_per_s / TERA, float(row["tflops_per_gpu"]), made)
        )
    return Agreement("Megatron-LM 2021", "TFLOP/s a GPU", tuple(rows), "Narayanan et al. 2021, table 1")


def llmfoundry(constants: Constants = CONSTANTS) -> Agreement[Step]:
    """MosaicML llm-foundry: tokens a second and GPU of MPT models, FSDP, fused attention, 40 and 80 GB A100s.

    RoCE of 1,600 Gbit/s a node: 25 GB/s a GPU. The 80 GB runs used torch 2.1, whose recomputation stops before a
    block's last product. The model counts that product, and so predicts those that recompute up to a tenth too slow.
    """
    rows = []
    for row in table("llmfoundry_throughput_a100"):
        layers, hidden, heads, vocab, seq = _counts(row, "layers", "d_model", "heads", "vocab", "seq_len")
        model = Transformer(layers, hidden, heads, vocab, seq)
        gpus, device = int(row["gpus"]), f"A100 SXM4 {row['gpu'][-4:-2]}GB"
        layout = Layout(
            gpus, zero=3, micro_batch=int(row["micro_batch"]),
            recompute="full" if row["activation_checkpointing"] == "True" else "none",
            dtype="mixed bfloat16" if row["mp_mode"] == "PURE" else "autocast bfloat16",
        )  # fmt: skip
        cluster = Cluster(device, gpus, inter=network(25 * GIGA, "RoCE, 1600 Gbit/s a node"))
        made = step(model, cluster, layout, int(row["global_batch_seqs"]), constants=constants)
        label = f"{row['model']}, {model.seq:,} tokens, {gpus} x {device[10:]}"
        rows.append(Compared(label, made.tokens_per_s / gpus, float(row["tokens_per_s_per_gpu"]), made))
    return Agreement("llm-foundry", "tokens/s a GPU", tuple(rows), "mosaicml/llm-foundry, benchmarking/README.md")


def _zero_bubble(
    name: str, unit: str, column: str, predicted: Callable[[Step], float], constants: Constants = CONSTANTS
) -> Agreement[Step]:
    """Qi et al. 2024, table 4, 1F1B plain and interleaved: a `column` of the table beside what a step predicts."""
    rows = []
    for row in table("zero_bubble_throughput_small"):
        if not row["schedule"].startswith("1F1B"):
            continue
        layers, hidden, heads, seq, stages = _counts(row, "layers", "hidden", "heads", "seq_len", "pp")
        model = Transformer(layers, hidden, heads, 50_304, seq, fused_attention=False, dropout=True)
        layout = Layout(
            pipeline=stages, interleave=(model.layers + 2) // stages if row["schedule"] == "1F1B-I" else 1,
            micro_batch=int(row["micro_batch"]), dtype="autocast bfloat16", overlap=False,
        )  # fmt: skip
        batch = layout.micro_batch * int(row["microbatches_m"])
        made = step(model, Cluster("A100 SXM4 80GB", int(row["gpus"])), layout, batch, constants=constants)
        label = f"{row['model']}, {row['schedule']}, {row['microbatches_m']} micro-batches"
        rows.append(Compared(label, predicted(made), float(row[column]), made))
    return Agreement(name, unit, tuple(rows), "Qi et al. 2024, table 4")


def zero_bubble(constants: Constants = CONSTANTS) -> Agreement[Step]:
    """Qi et al. 2024, table 4, 1F1B plain and interleaved: samples a second and GPU. Nothing was fitted to it."""
    unit, column = "samples/s a GPU", "samples_per_gpu_per_s"
    return _zero_bubble(
        "Zero bubble's 1F1B", unit, column, lambda made: made.batch / made.seconds / made.cluster.gpus, constants
    )


def zero_bubble_memory() -> Agreement[Step]:
    """Qi et al. 2024, table 4, 1F1B plain and interleaved: GB (1e9 B) on the fullest GPU."""
    return _zero_bubble("Zero bubble's memory", "GB", "memory_gb", lambda made: made.memory_bytes / GIGA)


COMPARISONS: Mapping[str, Callable[[], Agreement[Step]]] = MappingProxyType(
    {
        "megatron": megatron,
        "llm-foundry": llmfoundry,
        "zero bubble": zero_bubble,
        "zero bubble memory": zero_bubble_memory,
    }
)


@checked
def published_steps(name: str) -> Agreement[Step]:
    """The model compared with a published table of a name in COMPARISONS. Raises BadArgument with the nearest name."""
    return lookup(name, COMPARISONS, "published table")()
