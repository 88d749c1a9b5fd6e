"""Makes imagecorruptions_reference.npz; run once, with imagecorruptions-imaug 1.1.5 in an environment of its own.

    python make_reference.py imagecorruptions_reference.npz

Of each corruption at each severity, on the two pictures of `photographs` (needs scikit-learn and pillow): five
numbers (see `statistics`), averaged over draws, with standard errors. Of those without randomness also the pixels.
"""

import sys

import numpy as np

FIXED = (
    "defocus_blur",
    "zoom_blur",
    "gaussian_blur",
    "brightness",
    "contrast",
    "saturate",
    "pixelate",
    "jpeg_compression",
)


def photographs() -> dict[str, np.ndarray]:
    """A pagoda, 224×224, and its means over 7×7 pixels, 32×32; uint8 (H, W, 3)."""
    from sklearn.datasets import load_sample_image

    large = load_sample_image("china.jpg")[100:324, 200:424]
    small = np.round(large.reshape(32, 7, 32, 7, 3).mean((1, 3))).astype(np.uint8)
    return {"small": small, "large": large.copy()}


def statistics(images: np.ndarray, clean: np.ndarray) -> np.ndarray:
    """(N, 5) of images (N, H, W, 3) in 0 … 1: mean, std, mean change, mean step across and down."""
    parts = (
        images.mean((1, 2, 3)),
        images.std((1, 2, 3)),
        np.abs(images - clean).mean((1, 2, 3)),
        np.abs(np.diff(images, axis=2)).mean((1, 2, 3)),
        np.abs(np.diff(images, axis=1)).mean((1, 2, 3)),
    )
    return np.stack(parts, 1)


def main(path: str) -> None:
    import imagecorruptions

    np.random.seed(0)
    found = {}
    for size, image in photographs().items():
        for name in imagecorruptions.get_corruption_names("all"):
            for severity in range(1, 6):
                draws = 1 if name in FIXED else 128 if size == "small" else 24
                drawn = [np.asarray(imagecorruptions.corrupt(image, severity, name)) for _ in range(draws)]
                numbers = statistics(np.stack(drawn) / 255, image / 255)
                error = numbers.std(0, ddof=1) / draws**0.5 if draws > 1 else np.zeros(5)
                found[f"{size}.{name}.{severity}"] = np.stack([numbers.mean(0), error]).astype(np.float32)
                if name in FIXED and size == "small" and severity in (1, 3, 5):
                    found[f"pixels.{name}.{severity}"] = drawn[0].astype(np.uint8)
                if name == "motion_blur" and size == "small" and severity in (1, 3):
                    np.random.seed(7)
                    found[f"angle.{name}.{severity}"] = np.float64(np.random.uniform(-45, 45))
                    np.random.seed(7)
                    pixels = imagecorruptions.corrupt(image, severity, name)
                    found[f"pixels.{name}.{severity}"] = np.asarray(pixels).astype(np.uint8)
    np.savez_compressed(path, **found)


if __name__ == "__main__":
    main(sys.argv[1])
