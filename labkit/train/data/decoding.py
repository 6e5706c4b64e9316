"""From the bytes of a JPEG to the tensor that a network takes, one stage at a time."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from labkit.core.errors import DataError
from labkit.train.data.bundled import check_at_least_one

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Prepare:
    """What becomes of each JPEG: bytes in, an image (3, size, size) out; the stages are methods of their own.

    `reduced` lets the decoder make a smaller image from the start, of 1/2, 1/4 or 1/8, as long as it is no smaller than
    `size`. `shift` moves each image by up to so many pixels both ways, zeros behind it. The result is float32 in 0 to
    1, or with `as_float` False uint8, a quarter of the bytes. Raises DataError for a size below 1, a shift below 0.
    """

    size: int = 32
    reduced: bool = False
    shift: int = 0
    as_float: bool = True

    def __post_init__(self) -> None:
        check_at_least_one(size=self.size)
        if self.shift != 0:
            check_at_least_one(shift=self.shift)

    @property
    def image_bytes(self) -> int:
        """Bytes of one finished image."""
        return 3 * self.size**2 * (4 if self.as_float else 1)

    def __call__(self, jpeg: bytes) -> Tensor:
        """All stages; DataError for bytes that are no whole JPEG."""
        return self.finish(self.augment(self.decode(jpeg)))

    def decode(self, jpeg: bytes) -> NDArray[np.uint8]:
        """Decode and resize: (3, size, size) of uint8. DataError for bytes that are no whole JPEG."""
        from PIL import Image

        wanted = (self.size, self.size)
        try:
            with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
                if self.reduced:
                    image.draft("RGB", wanted)
                pixels = image.convert("RGB")
        except (OSError, ValueError, SyntaxError, IndexError, Image.DecompressionBombError) as error:
            raise DataError(f"Expected a whole JPEG, got {len(jpeg):,} bytes that are none ({_why(error)}).") from error
        if pixels.size != wanted:
            pixels = pixels.resize(wanted, Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))

    def augment(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The image moved by a random amount of its own, at most `shift` pixels right or left and down or up."""
        if self.shift == 0:
            return image
        down, right = torch.randint(-self.shift, self.shift + 1, (2,)).tolist()  # torch seeds each worker apart
        moved = np.zeros_like(image)
        n = self.size
        moved[:, max(down, 0) : n + min(down, 0), max(right, 0) : n + min(right, 0)] = image[
            :, max(-down, 0) : n + min(-down, 0), max(-right, 0) : n + min(-right, 0)
        ]
        return moved

    def finish(self, image: NDArray[np.uint8]) -> Tensor:
        """The image as a tensor, float32 in 0 to 1 where that is asked for."""
        tensor = torch.from_numpy(image)
        return tensor.float().div_(255) if self.as_float else tensor


def _why(error: Exception) -> str:
    """The decoder's reason, without the address of an object in memory."""
    return " ".join(str(error).split(" <")[0].split()) or type(error).__name__
