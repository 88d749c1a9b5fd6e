"""AlexNet, in the one-tower form, and its compact version for small images.

Reference: Krizhevsky, "One weird trick for parallelizing convolutional neural networks", arXiv:1404.5997
(filters 64-192-384-256-256), after Krizhevsky et al., NeurIPS 2012.
"""

from torch import nn

from bayesify.checks import Rate, checked
from bayesify.nets.parts import FeaturesHead, Shape, check_image, choose, dropout_layer, pooled_head

FILTERS = (64, 192, 384, 256, 256)
SMALLEST = {"imagenet": 63, "compact": 29}


def conv_layers(channels: int, padding: int, pool: int) -> list[nn.Module]:
    """The five convolutions with ReLU; pooling of width `pool` and stride 2 after the 1st, 2nd and 5th."""
    first, second, third, fourth, fifth = FILTERS
    return [
        *(nn.Conv2d(channels, first, 11, stride=4, padding=padding), nn.ReLU(), nn.MaxPool2d(pool, stride=2)),
        *(nn.Conv2d(first, second, 5, padding=2), nn.ReLU(), nn.MaxPool2d(pool, stride=2)),
        *(nn.Conv2d(second, third, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(third, fourth, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(fourth, fifth, 3, padding=1), nn.ReLU(), nn.MaxPool2d(pool, stride=2)),
    ]


def dense_head(num_outputs: int, dropout: float) -> nn.Sequential:
    """Average to 6×6, then 4096, 4096 and num_outputs units."""
    return nn.Sequential(
        *(nn.AdaptiveAvgPool2d(6), nn.Flatten()),
        *(*dropout_layer(dropout), nn.Linear(FILTERS[-1] * 6 * 6, 4096), nn.ReLU()),
        *(*dropout_layer(dropout), nn.Linear(4096, 4096), nn.ReLU()),
        nn.Linear(4096, num_outputs),
    )


@checked
def alexnet(
    num_outputs: int, input_shape: Shape = (3, 32, 32), head: str = "auto", dropout: Rate = 0.5
) -> FeaturesHead:
    """AlexNet: five convolutions, three max poolings, a head.

    head: "imagenet" (3×3 pooling, two dense layers of 4096 units), "compact" (2×2 pooling, one linear layer on 256
        features: 32×32 images end at 1×1, larger ones are averaged), or "auto": the first from 224 pixels on.
    dropout: rate before the two dense layers of the ImageNet head.

    >>> alexnet(10)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    head = choose("head", head, input_shape, small="compact", large="imagenet", threshold=224)
    channels, _, _ = check_image(input_shape, SMALLEST[head], "resize the images or choose net='lenet'")
    large = head == "imagenet"
    layers = conv_layers(channels, padding=2 if large else 5, pool=3 if large else 2)
    top = dense_head(num_outputs, dropout) if large else pooled_head(FILTERS[-1], num_outputs)
    return FeaturesHead(nn.Sequential(*layers), top)
