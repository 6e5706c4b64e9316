"""Write data/digits.npz: the 1,797 handwritten digits of scikit-learn, a fixed split,
source and license.

Run it again and the same bytes come out: stored, not compressed, so that no zlib
version changes them. Then put the sha256 it reports into labkit/train/data.py.
"""

from __future__ import annotations

import hashlib
import io
import random
import sys
import zipfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

TARGET = Path(__file__).parents[1] / "digits.npz"
TEST_IMAGES = 360
SOURCE = (
    "E. Alpaydin and C. Kaynak (1998), Optical Recognition of Handwritten Digits, UCI"
    " Machine Learning Repository, https://doi.org/10.24432/C50P49; its test part, as"
    " scikit-learn's load_digits ships it"
)
LICENSE = "CC BY 4.0, https://creativecommons.org/licenses/by/4.0/"


def in_test(labels: np.ndarray, n_test: int = TEST_IMAGES, seed: int = 0) -> np.ndarray:
    """A bool for each label: `n_test` of them chosen at random, each class in
    proportion (largest remainders).
    """
    generator = random.Random(seed)
    members = {
        k: np.flatnonzero(labels == k).tolist() for k in np.unique(labels).tolist()
    }
    quota = {k: n_test * len(rows) / len(labels) for k, rows in members.items()}
    counts = {k: int(q) for k, q in quota.items()}
    by_remainder = sorted(quota, key=lambda k: counts[k] - quota[k])
    for k in by_remainder[: n_test - sum(counts.values())]:
        counts[k] += 1
    chosen = np.zeros(len(labels), dtype=bool)
    for k, rows in members.items():
        chosen[generator.sample(rows, counts[k])] = True
    return chosen


def archive(arrays: dict[str, np.ndarray]) -> bytes:
    """An .npz file whose bytes depend on the arrays alone: no dates, no compression, no
    operating system.
    """
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as zipped:
        for name, array in arrays.items():
            info = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            info.create_system = 3  # else Windows writes 0 and the file differs
            member = io.BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            zipped.writestr(info, member.getvalue())
    return file.getvalue()


def build() -> bytes:
    """The whole file."""
    pixels, labels = load_digits(return_X_y=True)
    return archive(
        {
            "images": pixels.reshape(-1, 8, 8).astype(np.uint8),
            "labels": labels.astype(np.uint8),
            "in_test": in_test(labels),
            "source": np.array(SOURCE),
            "licence": np.array(LICENSE),  # as in the file that ships
        }
    )


if __name__ == "__main__":
    content = build()
    TARGET.write_bytes(content)
    sys.stdout.write(
        f"{TARGET}: {len(content):,} bytes, sha256"
        f" {hashlib.sha256(content).hexdigest()}\n"
    )
