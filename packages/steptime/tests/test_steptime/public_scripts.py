"""Training scripts of others: where each is, the one line that watches it, and data of
the kind that it reads, made up.
"""

import json
import os
import pickle
import random
import shutil
import string
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

# a folder with a copy of each repository, "owner+name"; without it, git fetches them
FOLDER = "STEPTIME_PUBLIC_SCRIPTS"
_FETCHED = Path(__file__).parents[2] / "build" / "public_scripts"
_COMMITS = {
    "karpathy/nanoGPT": "3adf61e154c3fe3fca428ad6bc3818b27a3b8291",
    "karpathy/minGPT": "37baab71b9abea1b76ab957409a1cc2fbfba8a26",
    "pytorch/examples": "77f55b912142e11fcfdf5b530231fb9c52f181e8",
    "huggingface/peft": "5d602fdbff04c33c1c4de55cda9d4ae1d7cb7e40",
    "Lightning-AI/pytorch-lightning": "7f0c3436cd3f6ad3753125672024fc415cbcb414",
}


@dataclass(frozen=True)
class Script:
    """A script of a public repository, and how it is watched.

    Of the repository, `folders` are copied; `script` runs with `arguments`, which
    shorten it in steps alone, where it lies. The `line` is put before the one that
    begins with `before`, in `file`. `make_data(folder)` writes what it would download.
    `losses` matches each loss that it prints.
    """

    repository: str
    folders: tuple[str, ...]
    script: str
    arguments: str
    before: str
    line: str
    losses: str
    make_data: Callable[[Path], object]
    file: str = ""  # the script's own
    needs: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the repository and the script."""
        _, _, repository = self.repository.partition("/")
        return f"{repository}: {self.script}"

    def copy(self, target: Path) -> None:
        """Copy what the script uses, and make its data."""
        for name in self.folders:
            source = _repository(self.repository, name)
            shutil.copytree(source, target / name, dirs_exist_ok=True)
        self.make_data((target / self.script).parent)

    def watch(self, target: Path) -> None:
        """Add the one line to a copy."""
        path = target / (self.file or self.script)
        lines = path.read_text().splitlines()
        number, before = next(
            (number, line)
            for number, line in enumerate(lines)
            if line.lstrip().startswith(self.before)
        )
        indent = before[: len(before) - len(before.lstrip())]
        lines.insert(number, f"{indent}import steptime; {self.line}")
        path.write_text("\n".join(lines) + "\n")

    def command(self, target: Path) -> list[str]:
        """What runs it."""
        return [str(target / self.script), *self.arguments.split()]

    def environment(self, target: Path) -> dict[str, str]:
        """With the copied folder among those of modules, and no network."""
        return {**os.environ, "PYTHONPATH": str(target), "HF_HUB_OFFLINE": "1"}


def _repository(name: str, folder: str) -> Path:
    """A folder of a public repository, as it was at one commit."""
    given = os.environ.get(FOLDER)
    if given is not None:
        return Path(given) / name.replace("/", "+") / folder
    copy = _FETCHED / name.replace("/", "+")
    copy.mkdir(parents=True, exist_ok=True)
    commit = _COMMITS[name]
    address = f"https://github.com/{name}"
    commands = (
        ("init", "--quiet"),
        ("fetch", "--quiet", "--depth=1", "--filter=blob:none", address, commit),
        ("checkout", "--quiet", commit, "--", folder),
    )
    for arguments in commands:
        if (copy / folder).exists():
            break
        ran = subprocess.run(["git", "-C", copy, *arguments], capture_output=True)
        if ran.returncode:
            pytest.skip(
                f"git can't fetch {address}: name a folder with copies in {FOLDER}"
            )
    return copy / folder


def make_characters(folder: Path) -> None:
    """Characters by number, as nanoGPT's prepare.py writes them."""
    data = folder / "data" / "shakespeare_char"
    for name in ("train.bin", "val.bin"):
        characters = np.random.default_rng(0).integers(65, size=200_000)
        characters.astype(np.uint16).tofile(data / name)
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 65}))


def make_text(folder: Path) -> None:
    """A text, with the words that minGPT's script continues."""
    letters = random.Random(0).choices(string.ascii_letters + " ,!\n", k=200_000)
    (folder / "input.txt").write_text("O God, O God!" + "".join(letters))


def make_words(folder: Path) -> None:
    """Three texts with many rare words, so that the last layer is a large one."""
    data = folder / "data" / "wikitext-2"
    data.mkdir(parents=True, exist_ok=True)
    words = [f"word{n}" for n in range(33_277)]
    rare_last = [1 / rank for rank in range(1, len(words) + 1)]
    for name, n in (("train", 10_000), ("valid", 2_000), ("test", 2_000)):
        drawn = random.Random(n).choices(words, rare_last, k=n)
        shown = words + drawn if name == "train" else drawn
        lines = [" ".join(shown[i : i + 60]) for i in range(0, len(shown), 60)]
        (data / f"{name}.txt").write_text("\n".join(lines) + "\n")


def make_digits(folder: Path, images: int = 16_000) -> None:
    """Noise in place of the digits of MNIST, in its format."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for part, n in (("train", images), ("t10k", 1_000)):
        pixels = generator.integers(256, size=(n, 28, 28), dtype=np.uint8)
        digits = generator.integers(10, size=n, dtype=np.uint8)
        for name, values, shape in (
            ("images-idx3", pixels, (n, 28, 28)),
            ("labels-idx1", digits, (n,)),
        ):
            header = struct.pack(f">{len(shape) + 1}i", 0x800 + len(shape), *shape)
            (raw / f"{part}-{name}-ubyte").write_bytes(header + values.tobytes())


def make_digits_beside(folder: Path) -> None:
    """The same, where pytorch/examples looks for it."""
    make_digits(folder.parent / "data")


def make_digits_twice(folder: Path) -> None:
    """The same, as often as the original and in both places of Lightning's example."""
    make_digits(folder / "data", 60_000)
    (folder.parents[1] / "Datasets").symlink_to(folder / "data")


def make_photographs(folder: Path) -> None:
    """Photographs of noise, of 400 by 350 pixels, in folders of two classes."""
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    for part, n in (("train", 160), ("val", 8)):
        for label in ("cat", "dog"):
            photographs = folder / "imagenet" / part / label
            photographs.mkdir(parents=True)
            for i in range(n // 2):
                coarse = generator.integers(256, size=(35, 40, 3), dtype=np.uint8)
                picture = image.fromarray(coarse).resize((400, 350))
                picture.save(photographs / f"{i}.jpg")


_MAKE_LLAMA = """
import json
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

words = ["[UNK]", "</s>", *(f"word{n}" for n in range(2_000))]
words += ["Below", "is", "an", "instruction"]
plain = Tokenizer(models.WordLevel({w: n for n, w in enumerate(words)}, "[UNK]"))
plain.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=plain, unk_token="[UNK]", eos_token="</s>"
)
tokenizer.save_pretrained("model")
set_seed(0)
config = LlamaConfig(
    vocab_size=len(words),
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=4,
    num_attention_heads=4,
)
LlamaForCausalLM(config).save_pretrained("model")
"""


def make_instructions(folder: Path) -> None:
    """A small Llama with random weights, and instructions with answers."""
    subprocess.run(
        [sys.executable, "-c", _MAKE_LLAMA], cwd=folder, check=True, capture_output=True
    )
    (folder / "data").mkdir()
    draw = random.Random(0)
    rows = [
        {
            "instruction": " ".join(f"word{draw.randrange(2_000)}" for _ in range(20)),
            "output": " ".join(f"word{draw.randrange(2_000)}" for _ in range(40)),
        }
        for _ in range(3_900)
    ]
    lines = "\n".join(map(json.dumps, rows))
    (folder / "data" / "train.jsonl").write_text(lines)


SCRIPTS = (
    Script(
        "karpathy/nanoGPT",
        (".",),
        "train.py",
        # as its README says for a CPU
        "config/train_shakespeare_char.py --device=cpu --compile=False --eval_iters=20"
        " --log_interval=1 --block_size=64 --batch_size=12 --n_layer=4 --n_head=4"
        " --n_embd=128 --max_iters=230 --lr_decay_iters=2000 --dropout=0.0",
        "# training loop",
        "get_batch = steptime.watch(get_batch)",
        r"loss ([\d.]+)",
        make_characters,
    ),
    Script(
        "karpathy/minGPT",
        ("mingpt", "projects"),
        "projects/chargpt/chargpt.py",
        "--trainer.max_iters=36",
        "model.train()",
        "train_loader = steptime.watch(train_loader)",
        r"train loss ([\d.]+)",
        make_text,
        file="mingpt/trainer.py",
    ),
    Script(
        "pytorch/examples",
        ("word_language_model",),
        "word_language_model/main.py",
        "--epochs=1",
        "# Loop over epochs.",
        "get_batch = steptime.watch(get_batch)",
        r"(?:loss|ppl) +([\d.]+)",
        make_words,
    ),
    Script(
        "pytorch/examples",
        ("mnist",),
        "mnist/main.py",
        "--epochs=1 --no-accel",
        "model = Net()",
        "train_loader = steptime.watch(train_loader)",
        r"[Ll]oss: ([\d.]+)",
        make_digits_beside,
        needs=("torchvision",),
    ),
    Script(
        "pytorch/examples",
        ("imagenet",),
        "imagenet/main.py",
        "--epochs=1 --no-accel --batch-size=4 --seed=0",
        "if args.evaluate:",
        "train_loader = steptime.watch(train_loader)",
        r"Loss ([\d.e+]+)",
        make_photographs,
        needs=("torchvision",),
    ),
    Script(
        "huggingface/peft",
        ("examples/olora_finetuning",),
        "examples/olora_finetuning/olora_finetuning.py",
        "--base_model=model --data_path=data --dtype=float32 --device_map=cpu --seed=0",
        "trainer.train()",
        "trainer.add_callback(steptime.hf.Diagnose())",
        r"loss'?: '?([\d.e+]+)",
        make_instructions,
        needs=("transformers", "datasets", "peft"),
    ),
    Script(
        "Lightning-AI/pytorch-lightning",
        ("examples/pytorch/basics",),
        "examples/pytorch/basics/autoencoder.py",
        "--trainer.max_epochs=1 --trainer.limit_train_batches=240",
        "cli.trainer.fit(",
        "cli.trainer.callbacks.append(steptime.lightning.Diagnose())",
        r"loss_epoch\D+([\d.]+)",
        make_digits_twice,
        needs=("lightning", "torchvision", "jsonargparse"),
    ),
)
