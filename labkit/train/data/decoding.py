"""From the bytes of a JPEG to the tensor that a network takes, one stage at a time."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from labkit.core.errors import DataError
from labkit.core.parameters import Count, Size, checked

if TYPE_CHECKING:
    from numpy.typing import NDArray


@checked(error=DataError)
@dataclass(frozen=True)
class Prepare:
    """Turn a JPEG's bytes into an image, float32 (3, size, size) in 0 to 1; each stage is a method of its own.

    With `reduced` the decoder makes a smaller image from the start, 1/2, 1/4 or 1/8 of the original, as long as it is
    no smaller than `size`. `shift` moves each image at random by up to so many pixels along both axes and fills with
    zeros. Raises DataError for a size below 1 and a shift below 0.
    """

    size: Count = 32
    reduced: bool = False
    shift: Size = 0

    @property
    def image_bytes(self) -> int:
        """Bytes of one finished image."""
        return 3 * self.size**2 * torch.float32.itemsize

    def __call__(self, jpeg: bytes) -> Tensor:
        """Run all stages. Raises DataError for bytes that are not a whole JPEG."""
        return self.finish(self.augment(self.decode(jpeg)))

    def decode(self, jpeg: bytes) -> NDArray[np.uint8]:
        """Decode and resize to uint8 (3, size, size). Raises DataError for bytes that are not a whole JPEG."""
        from PIL import Image

        wanted = (self.size, self.size)
        try:
            with Image.open(io.BytesIO(jpeg), formats=("JPEG",)) as image:
                if self.reduced:
                    image.draft("RGB", wanted)
                pixels = image.convert("RGB")
        except (OSError, ValueError, SyntaxError, IndexError, Image.DecompressionBombError) as error:
            # without the decoder's "<_io.BytesIO object at 0x...>", which differs from call to call
            reason = " ".join(str(error).split(" <")[0].split()) or type(error).__name__
            raise DataError(f"Expected a whole JPEG, got {len(jpeg):,} bytes that are not one ({reason}).") from error
        if pixels.size != wanted:
            pixels = pixels.resize(wanted, Image.Resampling.BILINEAR)
        return np.ascontiguousarray(np.asarray(pixels).transpose(2, 0, 1))

    def augment(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Move the image at random by at most `shift` pixels left or right and up or down, with zeros behind it."""
        if self.shift == 0:
            return image
        n, shift = self.size, self.shift
        padded = np.zeros((3, n + 2 * shift, n + 2 * shift), dtype=np.uint8)
        padded[:, shift : shift + n, shift : shift + n] = image
        # torch's generator, not NumPy's: torch seeds it differently in each worker
        y, x = torch.randint(2 * shift + 1, (2,)).tolist()
        return padded[:, y : y + n, x : x + n]

    def finish(self, image: NDArray[np.uint8]) -> Tensor:
        """Convert the image to a float32 tensor in 0 to 1."""
        return torch.from_numpy(image).float().div_(255)
