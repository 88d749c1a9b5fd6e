"""A network that sees a fixed view of its input: one crop and flip for all examples, another in every draw."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from bayesify.posteriors.dropout import SEED

CHOICE = "choice"


class Viewed(nn.Module):
    """net(view of x). Which view is a buffer, so that draws have it beside their weights.

    padding, fill: as of `bf.data.CropFlip`
    """

    choice: Tensor

    def __init__(self, net: nn.Module, padding: int, fill: Tensor) -> None:
        super().__init__()
        self.net, self.padding = net, padding
        self.register_buffer(CHOICE, torch.zeros((), dtype=torch.int64, device=fill.device))
        self.register_buffer("fill", fill)

    def forward(self, images: Tensor, *args: Any, **kwargs: Any) -> Any:
        """As `crop_flip` by one choice, without the size of the batch, which programs leave open."""
        fill, side = self.get_buffer("fill"), 2 * self.padding + 1
        height, width = images.shape[-2:]
        offset = self.choice // 2
        rows = torch.arange(height, device=images.device) + offset // side
        columns = torch.arange(width, device=images.device)
        columns = torch.where(self.choice % 2 == 1, columns.flip(0), columns) + offset % side
        padded = F.pad(images - fill, (self.padding,) * 4)
        return self.net(padded[..., rows[:, None], columns] + fill, *args, **kwargs)


def viewed(
    net: nn.Module, draws: dict[str, list[Tensor]], num_draws: int, augment: Any, generator: Generator | None
) -> tuple[nn.Module, dict[str, list[Tensor]]]:
    """`net` with a view of its own in each of `num_draws` passes, by `augment`, a `bf.data.CropFlip`."""
    from bayesify.data.augment import CropFlip, num_choices

    if not isinstance(augment, CropFlip):
        raise TypeError(
            f"augment={augment!r}: frozen predictors have fixed views, which they know of bf.data.CropFlip(...) "
            f"alone: give one, or None for the inputs as they are"
        )
    like = next(net.parameters())
    fill = torch.tensor(augment.fill, dtype=like.dtype, device=like.device).view(-1, 1, 1)
    device = like.device if generator is None else generator.device
    choices = torch.randint(num_choices(augment.padding), (num_draws,), generator=generator, device=device)
    found = {name if name == SEED else f"net.{name}": values for name, values in draws.items()}
    return Viewed(net, augment.padding, fill).eval(), found | {CHOICE: [*choices.to(like.device).unbind()]}
