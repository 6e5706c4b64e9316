"""Optimizers' states, adapters, weights in 4 bit and activations in main memory, held
to what was published; and what the libraries are told that start from a checkpoint.
"""

import csv
import dataclasses
import functools
import random
import shlex
from pathlib import Path

import pytest
import yaml

from trainplan.cluster import (
    SOFTWARE,
    Cluster,
    Layout,
    Transformer,
    configuration,
    model,
    step,
)
from trainplan.cluster.libraries import rules
from trainplan.cluster.software import versions
from trainplan.costs.memory_costs import NF4_BYTES, OPTIMIZER_STATES, PRECISIONS
from trainplan.errors import LayoutError

GIB = 2**30


def of(library, **fields):
    return Layout(software=SOFTWARE[library], **fields)


# --- optimizers ---


@pytest.mark.parametrize(
    ("optimizer", "dtype", "block", "table"),
    [
        ("adamw", "mixed bfloat16", 8, 8),
        ("adamw", "bfloat16", 4, 4),
        ("lion", "mixed bfloat16", 4, 4),
        ("sgd", "mixed bfloat16", 0, 0),
        ("adafactor", "mixed bfloat16", 0, 0),
        # a momentum of a block's matrices, AdamW for the embedding and the head
        ("muon", "mixed bfloat16", 4, 8),
        # bytes, and a scale of 4 bytes for each 256
        ("adamw_8bit", "bfloat16", 2 * (1 + 4 / 256), 2 * (1 + 4 / 256)),
        ("paged_adamw_32bit", "bfloat16", 8, 8),
    ],
)
def test_bytes_of_state_a_parameter(optimizer, dtype, block, table):
    states = OPTIMIZER_STATES[optimizer]
    kind = PRECISIONS[dtype]
    assert states.a_param(kind) == pytest.approx(block)
    assert states.a_table_param(kind) == pytest.approx(table)


def state_bytes(shape, optimizer, software="torch", **fields):
    layout = of(software, optimizer=optimizer, dtype="bfloat16", **fields)
    cluster = Cluster("H100 SXM5 80GB", layout.gpus)
    return step(shape, cluster, layout, layout.gpus).memory["optimizer state"]


def test_embedding_and_head_have_states_of_their_own():
    shape = model("Llama-3.1-8B")
    tables = 2 * shape.vocab * shape.hidden
    assert state_bytes(shape, "muon") == 2 * (shape.params + tables)
    tied = model("Llama-3.2-1B")
    table = tied.vocab * tied.hidden
    assert state_bytes(tied, "muon") == 2 * (tied.params + table)
    # on two stages the last one has a copy of a tied head
    assert state_bytes(tied, "muon", pipeline=2) == pytest.approx(
        2 * (tied.params / 2 + 1.5 * table), rel=0.01
    )
    # transformers keeps those of the embedding in 32 bit
    an_8_bit = 2 * (1 + 4 / 256)
    narrow = state_bytes(shape, "adamw_8bit")
    wide = state_bytes(shape, "adamw_8bit", "Trainer")
    assert narrow == pytest.approx(an_8_bit * shape.params)
    assert wide - narrow == pytest.approx((8 - an_8_bit) * tables / 2)
    plain = state_bytes(shape, "adamw", "Trainer")
    assert plain == state_bytes(shape, "adamw")


def test_paged_states_take_time_and_no_memory():
    shape = model("Llama-3.2-1B")
    assert state_bytes(shape, "paged_adamw_8bit") == 0
    cluster = Cluster("RTX 4090", 1)
    seconds = [
        step(shape, cluster, of("torch", optimizer=name), 4).parts["optimizer"]
        for name in ("adamw_8bit", "paged_adamw_8bit")
    ]
    assert seconds[1] > 2 * seconds[0]


def test_what_a_library_keeps_of_a_model_and_beside_it():
    cluster = Cluster("H100 SXM5 80GB", 8)

    def memory(name, software, **fields):
        layout = of(software, data=8, dtype="bfloat16", **fields)
        return step(model(name), cluster, layout, 8).memory

    kept = "kept for the backward pass"
    # transformers has no fused attention for Gemma 2, whose scores are capped
    for name, ratio in (("Gemma-2-2B", 4), ("Llama-3.2-1B", 1)):
        eager = memory(name, "torch eager")[kept]
        assert memory(name, "Trainer")[kept] >= ratio * eager
    # DeepSpeed's bucket of 500 million gradients
    plain = memory("Llama-3.2-1B", "torch eager", zero=2)["gradients"]
    deep = Layout(data=8, zero=2, software=SOFTWARE["DeepSpeed"])
    bucket = step(model("Llama-3.2-1B"), cluster, deep, 8).memory["gradients"] - plain
    assert bucket == pytest.approx(2 * 5e8)


# --- adapters, 4 bit, activations in main memory ---


def test_a_weight_in_4_bit_has_scales_that_are_quantized_too():
    bits = 8 * NF4_BYTES
    assert bits == pytest.approx(4.127, abs=5e-4)  # the paper's 0.127 more


def test_what_adapters_train():
    shape = model("Llama-2-7B")
    # litgpt's 4,194,304 of rank 8 beside queries and values are half of those beside
    # queries, keys, values and outputs
    assert dataclasses.replace(
        shape, adapters=8, adapted="linear"
    ).trained_params == 2 * 4_194_304 + 32 * 8 * 3 * (4096 + 11_008)
    with pytest.raises(ValueError, match="adapters with quantized weights"):
        dataclasses.replace(shape, quantized=True)


LINEAR = {"adapters": 64, "adapted": "linear"}
IN_4_BIT = {**LINEAR, "quantized": True}
FULL = {"recompute": "full"}
OFFLOADED = {**FULL, "offload_activations": True}
# pytorch/torchtune, README.md (bd2a0fc7): Llama 3.2 3B, 2 sequences of 4,096 tokens,
# bfloat16, one A100; peak GiB and tokens/s, each technique on top of the ones before
TORCHTUNE = [
    ("packed", "eager", {}, {}, 60.0, 7075),
    ("compiled", "all", {}, {}, 51.0, 8998),
    ("chunked loss", "chunked", {}, {}, 42.9, 9174),
    ("checkpointing", "chunked", {}, FULL, 24.9, 7210),
    (
        "8-bit AdamW",
        "chunked",
        {},
        {**OFFLOADED, "optimizer": "adamw_8bit"},
        17.6,
        6960,
    ),
    ("LoRA", "chunked", LINEAR, OFFLOADED, 8.5, 8210),
    ("QLoRA", "chunked", IN_4_BIT, OFFLOADED, 4.6, 8035),
]
HABITS = {
    "eager": SOFTWARE["torch eager"],
    "all": SOFTWARE["torch"],
    "chunked": dataclasses.replace(SOFTWARE["torch"], logit_pieces=8),
}


@pytest.mark.parametrize(
    ("habit", "adapted", "fields", "gib", "tokens_per_s"),
    [row[1:] for row in TORCHTUNE],
    ids=[row[0] for row in TORCHTUNE],
)
def test_torchtune_s_table_of_what_each_technique_saves(
    habit, adapted, fields, gib, tokens_per_s
):
    shape = dataclasses.replace(model("Llama-3.2-3B"), seq=4096, **adapted)
    layout = Layout(micro_batch=2, dtype="bfloat16", software=HABITS[habit], **fields)
    planned = step(shape, Cluster("A100 SXM4 80GB", 1), layout, 2)
    assert planned.memory_bytes / GIB == pytest.approx(gib, rel=0.12)
    assert planned.tokens_per_s == pytest.approx(tokens_per_s, rel=0.12)


# The same page: compiled, 2,048 tokens a sequence, adapters beside all products; the
# sequences a GPU are those of its recipes' files (recipes/configs/llama3_1)
ON_DEVICES = [
    ("Llama-3.1-8B", 1, "RTX 4090", 2, 8, False, 16.2 * GIB),
    ("Llama-3.1-8B", 1, "RTX 4090", 2, 8, True, 7.4 * GIB),
    ("Llama-3.1-70B", 8, "A100 SXM4 80GB", 2, 16, False, 27.6 * GIB),
    ("Llama-3.1-405B", 8, "A100 SXM4 80GB", 1, 16, True, 44.8e9),
]


@pytest.mark.parametrize(
    ("name", "gpus", "gpu", "micro_batch", "rank", "quantized", "n_bytes"), ON_DEVICES
)
def test_torchtune_s_table_of_devices(
    name, gpus, gpu, micro_batch, rank, quantized, n_bytes
):
    shape = dataclasses.replace(
        model(name), seq=2048, adapters=rank, adapted="linear", quantized=quantized
    )
    layout = Layout(
        data=gpus,
        zero=3 if gpus > 1 else 0,
        micro_batch=micro_batch,
        dtype="bfloat16",
        software=HABITS["chunked"],
        **FULL,
    )
    planned = step(shape, Cluster(gpu, gpus), layout, gpus * micro_batch)
    assert planned.memory_bytes == pytest.approx(n_bytes, rel=0.12)


# Lightning-AI/litgpt, tutorials/resource-tables.md (26857050): LoRA of rank 8 on one
# A100, 1,304 tokens, bf16-true; model, micro-batch, in 4 bit, peak GB
LITGPT = [
    ("Llama-2-7B", 1, False, 21.30),
    ("Llama-2-7B", 2, False, 29.07),
    ("Llama-2-7B", 1, True, 13.84),
    ("Llama-2-13B", 1, False, 38.12),
    ("Llama-2-13B", 1, True, 22.55),
]


@pytest.mark.parametrize(("name", "micro_batch", "quantized", "gb"), LITGPT)
def test_litgpt_s_table_of_lora_and_qlora(name, micro_batch, quantized, gb):
    shape = dataclasses.replace(model(name), seq=1304, adapters=8, quantized=quantized)
    layout = of("litgpt", micro_batch=micro_batch)
    planned = step(shape, Cluster("A100 SXM4 40GB", 1), layout, micro_batch)
    assert planned.memory_bytes / 1e9 == pytest.approx(gb, rel=0.12)


def test_qlora_finetunes_65_billion_parameters_in_48_gb_and_full_doesnt():
    """Dettmers et al. 2023, QLoRA, abstract: 65B on one GPU of 48 GB, where full
    finetuning in 16 bit takes more than 780 GB.
    """
    sizes = {"vocab": 32_000, "seq": 512, "feed_forward": 22_016, "gated": True}
    shape = Transformer(80, 8192, 64, **sizes)
    card = Cluster("RTX A6000", 1)
    qlora = dataclasses.replace(shape, **IN_4_BIT)
    layout = of("torch eager", dtype="bfloat16", optimizer="paged_adamw_32bit", **FULL)
    assert step(qlora, card, layout, 1).memory_bytes < 48e9
    whole = step(shape, card, of("torch eager", **FULL), 1)
    assert whole.memory_bytes > 780e9


def test_activations_in_main_memory_wait_where_the_bus_is_slow():
    shape = dataclasses.replace(model("Llama-3.1-8B"), seq=8192)
    card = Cluster("H100 SXM5 80GB", 1)

    def planned(**fields):
        layout = of("torch", optimizer="adafactor", dtype="bfloat16", **fields)
        return step(shape, card, layout, 1)

    kept, sent = planned(), planned(offload_activations=True)
    name = "kept for the backward pass"
    assert sent.memory[name] < kept.memory[name] / 10
    assert kept.parts["activation offloading"] == 0
    assert sent.parts["activation offloading"] > 0  # all of a block, over PCIe
    blocks = planned(offload_activations=True, **FULL)
    assert blocks.parts["activation offloading"] == 0  # their inputs alone hide


# --- what libraries are told ---

LIBRARIES = (
    *("Trainer", "Trainer FSDP", "Trainer DeepSpeed"),
    *("TRL", "axolotl", "torchtune", "litgpt"),
)


@functools.cache
def options(library):
    """The options of a library by name: (kind, choices), from its sources at the
    version in the table; TRL has those of Trainer too.
    """
    with (Path(__file__).parent / "library_options.csv").open(
        newline="", encoding="utf-8"
    ) as file:
        read = [row for row in csv.DictReader(file) if row["library"] == library]
    assert {row["version"] for row in read} == {versions()[library]}
    own = {row["option"]: (row["kind"], row["choices"].split()) for row in read}
    return {**options("Trainer"), **own} if library == "TRL" else own


def require_option(library, name, value):
    """The value of an option that exists, and has such values."""
    kind, choices = options(library)[name]
    if kind in ("int", "bool", "str", "float"):
        kinds = {"int": int, "bool": bool, "str": str, "float": float}
        assert type(value) is kinds[kind], (name, value)
    assert not choices or value in choices, (name, value)
    return value


def leaves(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def drawn(library, count=25):
    """Steps of layouts that a library runs, drawn at random."""
    draw = random.Random(f"finetuning with {library}")
    allowed = {rule.field: rule.allowed for rule in rules(library) if not rule.where}
    names = ["Llama-3.1-8B", "Qwen2.5-7B", "Qwen3-4B", "Gemma-2-2B", "Mistral-7B"]
    planned = []
    for _ in range(3000):
        layout = of(
            library,
            data=draw.choice((1, 2, 8, 16)),
            zero=draw.choice((0, 1, 2, 3)),
            micro_batch=draw.choice((1, 2)),
            recompute=draw.choice(("none", "full")),
            dtype=draw.choice(allowed["dtype"]),
            optimizer=draw.choice(allowed["optimizer"]),
            offload=draw.random() < 0.2,
            offload_activations=draw.random() < 0.2,
        )
        adapters = draw.choice((0, 16))
        shape = dataclasses.replace(
            model(draw.choice(names)),
            adapters=adapters,
            adapted=draw.choice(("attention", "linear")),
            quantized=adapters > 0 and draw.random() < 0.5,
        )
        batch = layout.data * layout.micro_batch * 4
        cluster = Cluster("H100 SXM5 80GB", layout.gpus)
        try:
            planned.append(step(shape, cluster, layout, batch))
        except LayoutError:
            continue
        if len(planned) == count:
            return planned
    raise AssertionError(f"{library} runs {len(planned)} of 3,000 layouts")


def told(library, planned):
    """The options that a configuration says, by name."""
    text = configuration(planned)
    values = {}
    if library == "torchtune":
        words = [word for word in shlex.split(text, comments=True) if "=" in word]
        for name, value in (word.split("=", 1) for word in words):
            values[name] = yaml.safe_load(value)
    elif library == "axolotl":
        values = dict(leaves(yaml.safe_load(text)))
    else:
        is_command = library == "litgpt"
        command = text if is_command else text.replace("\n#", "\n")
        words = shlex.split(command, comments=True) if is_command else command.split()
        for i, word in enumerate(words):
            if word.startswith("--") and word != "--config_file":
                values[word[2:]] = yaml.safe_load(words[i + 1])
        if not is_command:
            tree = yaml.safe_load(text)
            values |= {f"accelerate.{name}": value for name, value in leaves(tree)}
    home = "Trainer" if library.startswith("Trainer") else library
    return {name: require_option(home, name, v) for name, v in values.items()}


SAYS = {  # what each calls micro-batch, tokens a sequence, and micro-batches or batch
    "axolotl": ("micro_batch_size", "sequence_len", "gradient_accumulation_steps"),
    "torchtune": (
        "batch_size",
        "tokenizer.max_seq_len",
        "gradient_accumulation_steps",
    ),
    "litgpt": (
        "train.micro_batch_size",
        "train.max_seq_length",
        "train.global_batch_size",
    ),
    "TRL": ("per_device_train_batch_size", "max_length", "gradient_accumulation_steps"),
    "Trainer": (
        "per_device_train_batch_size",
        "block_size",
        "gradient_accumulation_steps",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_a_library_is_told_exists_and_is_the_plan(library):
    home = "Trainer" if library.startswith("Trainer") else library
    micro_batch, tokens, pieces = SAYS[home]
    for planned in drawn(library):
        layout = planned.layout
        values = told(library, planned)
        assert values[micro_batch] == layout.micro_batch
        assert values[tokens] == planned.model.seq
        whole = planned.batch if library == "litgpt" else 4
        assert values[pieces] == whole
        ranks = {"lora_r", "model.lora_rank"} & set(values)
        assert {values[name] for name in ranks} == {planned.model.adapters} - {0}
        in_4_bit = {"load_in_4bit", "model.quantize_base", "quantize"} & set(values)
        assert any(values[name] for name in in_4_bit) == planned.model.quantized
        if "accelerate.num_processes" in values:
            assert values["accelerate.num_processes"] == planned.cluster.gpus
            is_fsdp = values["accelerate.distributed_type"] == "FSDP"
            assert is_fsdp == (layout.zero == 3 and library != "Trainer DeepSpeed")
