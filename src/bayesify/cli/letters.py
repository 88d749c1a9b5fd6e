"""Letters as small grey images: inputs of another kind for a network that knows digits."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: those that no digit looks like
LETTERS = "ACEFHKMNPRTUVWXYadefhkmnrtwx"
FONTS = ("Sans", "Sans-Oblique", "Serif", "SansMono", "Sans-Bold", "Serif-Italic")  # of DejaVu
LARGE = 64


def letters(size: int = 8) -> Tensor:
    """(letters · fonts, 1, size, size) in 0 … 1, drawn in the fonts that ship with matplotlib."""
    drawn = [_draw(letter, font, size) for font in _fonts() for letter in LETTERS]
    return torch.from_numpy(np.stack(drawn)).float()[:, None]


def _fonts() -> list[Any]:
    import matplotlib
    from PIL import ImageFont

    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    return [ImageFont.truetype(str(folder / f"DejaVu{name}.ttf"), LARGE) for name in FONTS]


def _draw(letter: str, font: Any, size: int) -> np.ndarray:
    """The letter as high as the image, in the middle, its ink as dark as that of digits."""
    from PIL import Image, ImageDraw

    canvas = Image.new("L", (3 * LARGE, 3 * LARGE))
    ImageDraw.Draw(canvas).text((LARGE, LARGE), letter, fill=255, font=font)
    ink = canvas.crop(canvas.getbbox())
    scale = size / ink.height
    width = max(1, min(size, round(ink.width * scale)))
    small = ink.resize((width, size), Image.Resampling.BOX)
    whole = Image.new("L", (size, size))
    whole.paste(small, ((size - width) // 2, 0))
    pixels = np.asarray(whole, dtype=np.float32) / 255
    return pixels / max(float(pixels.max()), 1e-6)
