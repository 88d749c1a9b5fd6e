"""Figures of single inputs: images with their predictive distributions, and saliency maps."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayesify.report.figures.style import COLOURS, GOOD, INK, MUTED, Array, new, prepared


def predictions(images: Array, probs: Array, targets: Array, class_names: Sequence[str] | None = None) -> Any:
    """Images (N, H, W, C) with the probabilities of the likeliest classes; the right one in blue."""
    figure, cells = _two_rows(len(images), 2.1, height_ratios=(1.1, 1))
    for i in range(len(images)):
        _show(cells[0, i], images[i])
        best = np.argsort(-probs[i])[:3]
        axes = prepared(cells[1, i])
        axes.grid(False)
        colours = [GOOD if c == targets[i] else COLOURS[1] for c in best]
        axes.barh(range(len(best)), probs[i][best], color=colours, height=0.7)
        names = [str(c) if class_names is None else class_names[c] for c in best]
        axes.set_yticks(range(len(best)), [name[:9] for name in names], fontsize=8)
        axes.set(xlim=(0, 1), xticks=[])
        axes.invert_yaxis()
        axes.spines["bottom"].set_visible(False)
        right = str(targets[i]) if class_names is None else class_names[targets[i]]
        cells[0, i].set_title(f"true: {right[:9]}", fontsize=8, color=INK)
    return figure


def saliency_maps(images: Array, maps: Array, labels: Sequence[str]) -> Any:
    """Images above the sizes of the gradients of their predicted class."""
    figure, cells = _two_rows(len(images), 2.2)
    for i in range(len(images)):
        _show(cells[0, i], images[i])
        _show(cells[1, i], maps[i] / max(float(maps[i].max()), 1e-12), "magma")
        cells[0, i].set_title(labels[i][:10], fontsize=8, color=INK)
    return figure


def _two_rows(count: int, height: float, **options: Any) -> tuple[Any, Any]:
    """A figure with 2 × `count` axes."""
    figure, _ = new(1.15 * count, height)
    figure.clear()
    return figure, figure.subplots(2, count, squeeze=False, **options)


def _show(axes: Any, image: Array, colours: str = "gray") -> None:
    grey = image.ndim == 2 or image.shape[-1] == 1
    axes.imshow(image.squeeze() if grey else image, cmap=colours if grey else None, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color=MUTED, linewidth=0.6)
