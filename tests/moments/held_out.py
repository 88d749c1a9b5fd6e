"""Networks on which the covariance of the outputs is tried: shapes that layouts, sharing and norms must cope with."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Mlp(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3))


class Residual(nn.Module):
    """Batch norm, sums, max and average pooling, in-place activations."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.second_norm = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.first_norm(self.first(x)), inplace=True)
        x = F.relu(x + self.second_norm(self.second(x)))
        return self.out(F.max_pool2d(x, 2).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, batch_first: bool = True) -> None:
        super().__init__()
        self.cells = nn.LSTM(5, 6, batch_first=batch_first, bidirectional=True)
        self.out, self.batch_first = nn.Linear(12, 3), batch_first

    def forward(self, x: Tensor) -> Tensor:
        h, _ = self.cells(x)
        return self.out(h[:, -1] if self.batch_first else h[-1])


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.ReLU())
        self.deep = nn.Sequential(nn.Conv2d(4, 8, 3, stride=2, padding=1), nn.ReLU())
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.end, self.out = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.ReLU()), nn.Conv2d(4, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        down = self.down(x)
        return self.out(self.end(torch.cat([down, self.up(self.deep(down))], 1))).mean((2, 3))


class ConvNeXt(nn.Module):
    """Depthwise convolution, layer norm over channels, a scale of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.depthwise = nn.Conv2d(1, 8, 2, stride=2), nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.norm, self.wide, self.narrow = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.scale, self.out = nn.Parameter(0.5 * torch.ones(8)), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = self.narrow(F.gelu(self.wide(h))) * self.scale
        return self.out((x + h.permute(0, 3, 1, 2)).mean((2, 3)))


class Windows(nn.Module):
    """Attention within windows, as in Swin: an example is several rows of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.project = nn.Conv2d(1, 8, 1), nn.Linear(8, 24), nn.Linear(8, 8)
        self.norm, self.bias, self.out = (
            nn.LayerNorm(8),
            nn.Parameter(0.1 * torch.randn(1, 16, 16)),
            nn.Linear(8, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x).permute(0, 2, 3, 1)
        batch, height, width, dim = x.shape
        w = x.view(batch, height // 4, 4, width // 4, 4, dim).permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, dim)
        q, k, v = self.qkv(self.norm(w)).chunk(3, -1)
        w = w + self.project(((q @ k.transpose(1, 2)) / 3 + self.bias).softmax(-1) @ v)
        return self.out(w.view(batch, -1, dim).mean(1))


class Tokens(nn.Module):
    """Embedding, positions, class token, an encoder layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.positions = nn.Embedding(10, 8), nn.Parameter(0.3 * torch.randn(5, 8))
        self.token = nn.Parameter(0.3 * torch.randn(1, 1, 8))
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.out = nn.Linear(8, 3)

    def forward(self, indices: Tensor) -> Tensor:
        x = self.embed(indices) + self.positions
        x = torch.cat([self.token.expand(len(indices), -1, -1), x], 1)
        return self.out(self.layer(x)[:, 0])


class Tied(nn.Module):
    """One layer used three times: its noise is the same each time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.tanh(self.layer(x))
        return self.out(x)


class Volume(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv3d(1, 4, 3, padding=1), nn.InstanceNorm3d(4, affine=True)
        self.up = nn.ConvTranspose3d(4, 4, 3, stride=2, padding=1, output_padding=1, groups=2)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(F.elu(self.up(F.relu(self.norm(self.first(x))))).mean((2, 3, 4)))


class Series(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv1d(2, 6, 5, padding="same"), nn.BatchNorm1d(6)
        self.second, self.out = nn.Conv1d(6, 6, 3, dilation=2), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool1d(F.leaky_relu(self.norm(self.first(x))), 2)
        return self.out(F.adaptive_avg_pool1d(F.silu(self.second(x)), 1).squeeze(-1))


#: name: (network, shape of its input without the batch)
NETWORKS = {
    "mlp": (Mlp, (4,)),
    "residual": (Residual, (1, 6, 6)),
    "recurrent": (Recurrent, (6, 5)),
    "u-net": (UNet, (1, 8, 8)),
    "convnext": (ConvNeXt, (1, 8, 8)),
    "windows": (Windows, (1, 8, 8)),
    "tokens": (Tokens, ()),
    "tied": (Tied, (6,)),
    "volume": (Volume, (1, 4, 4, 4)),
    "series": (Series, (2, 12)),
}


def network(name: str, batch: int = 4) -> tuple[nn.Module, Tensor]:
    """In double precision, with an input."""
    torch.manual_seed(0)
    make, shape = NETWORKS[name]
    x = torch.randint(0, 10, (batch, 5)) if name == "tokens" else torch.randn(batch, *shape).double()
    return make().double(), x
