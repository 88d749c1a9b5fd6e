"""One image of the digits data, as a person's own file would hold it."""

import numpy as np

from bayesify.data import load


def digit_image(index: int) -> np.ndarray:
    """(8, 8) bytes of a test image."""
    image = load("digits").test.inputs[index, 0].numpy()  # (8, 8) in 0 … 1
    return np.round(image * 255).astype(np.uint8)
