"""Images that stay on disk: decoded to uint8 batches when asked for, in worker processes when iterated."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from bayesify.data.files import import_optional

#: what makes an image upright, by EXIF's number of how it is stored
_TURNS = {
    **{2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM"},
    **{5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"},
}


@dataclass(frozen=True, eq=False)
class ImageFiles:
    """N image files that look like a uint8 tensor (N, 3, size, size) of which only slices are read.

    An image is turned upright (EXIF), converted to RGB, scaled so that its shorter side is `resize`, and
    its centre `size` × `size` is kept: a pure function of the file.
    """

    paths: tuple[Path, ...] = field(repr=False)
    size: int
    resize: int
    num_workers: int = 0
    dtype = torch.uint8

    def __len__(self) -> int:
        return len(self.paths)

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.paths), 3, self.size, self.size)

    def __getitem__(self, index: slice | Tensor) -> Tensor:
        """The chosen images, decoded here and now: (B, 3, size, size) uint8."""
        chosen = self.paths[index] if isinstance(index, slice) else [self.paths[i] for i in index.tolist()]
        images = torch.empty(len(chosen), *self.shape[1:], dtype=torch.uint8)
        for image, path in zip(images, chosen, strict=True):
            image.copy_(decode(path, self.size, self.resize))
        return images

    def take(self, index: Tensor) -> "ImageFiles":
        """The files at `index`, unread."""
        paths = tuple(self.paths[i] for i in index.tolist())
        return ImageFiles(paths, self.size, self.resize, self.num_workers)

    def fetch(self, batches: Sequence[Tensor], pin_memory: bool = False) -> Iterator[Tensor]:
        """The batches with these indices, in order, decoded ahead of use by `num_workers` processes."""
        loader = DataLoader(
            _Decoder(self),
            sampler=[batch.tolist() for batch in batches],  # of whole batches, hence batch_size None
            batch_size=None,
            num_workers=self.num_workers,
            pin_memory=pin_memory,
            generator=torch.Generator(),  # the workers' seed must not come from the global generator
        )
        for images in loader:
            if isinstance(images, ValueError):
                raise images
            yield images


class _Decoder(Dataset[Tensor | ValueError]):
    """Returns a bad file's error instead of raising it, so that it arrives without a worker's traceback."""

    def __init__(self, files: ImageFiles) -> None:
        self.files = files

    def __getitem__(self, index: list[int]) -> Tensor | ValueError:
        try:
            return self.files[torch.tensor(index, dtype=torch.int64)]
        except ValueError as error:
            return error


def decode(path: Path, size: int, resize: int) -> Tensor:
    """One JPEG or PNG file as uint8 (3, size, size)."""
    Image = import_optional("PIL.Image", "pillow", "reading image files")
    try:
        image = read_image(path, "RGB", formats=("JPEG", "PNG"))
    except FileNotFoundError:
        raise
    except Exception as error:  # the decoders raise OSError, SyntaxError, struct.error, …
        raise ValueError(f"{path}: not a readable JPEG or PNG image ({error})") from None
    scale = resize / min(image.size)
    width, height = (max(size, round(scale * side)) for side in image.size)
    left, top = (width - size) // 2, (height - size) // 2
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    pixels = np.array(image.crop((left, top, left + size, top + size)))  # (size, size, 3)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def read_image(path: Path, mode: str, formats: Sequence[str] | None = None) -> Any:
    """A file of any colour mode as a Pillow image of `mode`, "RGB" or "L", the way up a viewer shows it.

    Transparency is dropped. Of 16 bits of grey the upper 8 are kept; Pillow would clip them to white.
    """
    Image = import_optional("PIL.Image", "pillow", "reading image files")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL.TiffImagePlugin")  # damaged EXIF; the pixels are sound
        warnings.simplefilter("error", Image.DecompressionBombWarning)  # above 89 million pixels
        with Image.open(path, formats=formats) as image:
            image.load()
            turn = _TURNS.get(_orientation(image))
            if image.mode.startswith("I") and image.format == "PNG":
                image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
            if "transparency" in image.info:
                image = image.convert("RGBA")  # straight to RGB Pillow warns
            if turn is not None:
                image = image.transpose(Image.Transpose[turn])
            return image.convert(mode)


def _orientation(image: Any) -> int:
    try:
        return image.getexif().get(0x0112, 1)
    except Exception:  # EXIF data can be damaged in any way
        return 1
