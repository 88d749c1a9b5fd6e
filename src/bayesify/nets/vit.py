"""Vision transformers.

References: Dosovitskiy et al., "An Image is Worth 16x16 Words", ICLR 2021, eqs. 1–4; Touvron et al.,
"Training data-efficient image transformers", ICML 2021, for the tiny and small sizes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.checks import Count, Depth, Rate, checked
from bayesify.nets.parts import Shape, check_image, dropout_layer


class XavierLinear(nn.Linear):
    """A linear layer that starts, and restarts, at Xavier-uniform weights and bias 0, as in ViT's code."""

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)


class Embedding(nn.Module):
    """z = [class token; projected patches of x] + positions (eq. 1).

    (batch, channels, height, width) -> (batch, tokens, dim)
    """

    def __init__(self, channels: int, num_patches: int, patch: int, dim: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(channels, dim, patch, stride=patch)
        self.class_token = nn.Parameter(torch.empty(1, 1, dim))
        self.positions = nn.Parameter(torch.empty(1, num_patches + 1, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Class token 0, positions N(0, 0.02²)."""
        nn.init.zeros_(self.class_token)
        nn.init.normal_(self.positions, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        patches = self.project(x).flatten(2).transpose(1, 2)  # (batch, patches, dim)
        token = self.class_token.expand(x.shape[0], -1, -1)  # (batch, 1, dim)
        return torch.cat([token, patches], dim=1) + self.positions  # (batch, tokens, dim)


class Attention(nn.Module):
    """Multi-head self-attention: softmax(q kᵀ / √(dim / heads)) v, heads joined by a linear layer."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = XavierLinear(dim, dim)
        self.key = XavierLinear(dim, dim)
        self.value = XavierLinear(dim, dim)
        self.join = XavierLinear(dim, dim)

    def split(self, x: Tensor) -> Tensor:
        batch, tokens, dim = x.shape
        # (batch, tokens, dim) -> (batch, heads, tokens, dim / heads)
        return x.reshape(batch, tokens, self.heads, dim // self.heads).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        out = F.scaled_dot_product_attention(query, key, value)  # (batch, heads, tokens, dim / heads)
        return self.join(out.transpose(1, 2).flatten(2))  # (batch, tokens, dim)


class Block(nn.Module):
    """z ← z + attention(norm(z));  z ← z + mlp(norm(z)) (eqs. 2 and 3)."""

    def __init__(self, dim: int, heads: int, mlp_dim: int, dropout: float) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(dim, eps=1e-6)
        self.attention = Attention(dim, heads)
        self.mlp_norm = nn.LayerNorm(dim, eps=1e-6)
        self.mlp = nn.Sequential(
            *(XavierLinear(dim, mlp_dim), nn.GELU(), *dropout_layer(dropout), XavierLinear(mlp_dim, dim))
        )
        self.dropout = nn.Sequential(*dropout_layer(dropout))  # empty at rate 0

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.dropout(self.attention(self.attention_norm(z)))
        return z + self.dropout(self.mlp(self.mlp_norm(z)))


class ViT(nn.Module):
    """Embedding, pre-norm blocks, norm, a linear layer on the class token (eq. 4).

    (batch, channels, height, width) -> (batch, num_outputs)
    """

    def __init__(self, embedding: Embedding, blocks: list[Block], dim: int, num_outputs: int) -> None:
        super().__init__()
        self.embedding = embedding
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(dim, eps=1e-6)
        self.head = XavierLinear(dim, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        z = self.blocks(self.embedding(x))  # (batch, tokens, dim)
        return self.head(self.norm(z[:, 0]))


@checked
def vit(
    num_outputs: int,
    input_shape: Shape,
    patch: Count = 16,
    dim: Count = 384,
    depth: Depth = 12,
    heads: Count = 6,
    mlp_dim: Count | None = None,
    dropout: Rate = 0.0,
) -> ViT:
    """A vision transformer for images of the size `input_shape` (learned positions fix the size).

    patch: height and width of a patch.
    dim: width of a token, a multiple of heads.
    depth: number of blocks.
    heads: of each attention.
    mlp_dim: hidden units of each block; None is 4 dim.
    dropout: rate in each block.

    >>> vit(10, (3, 32, 32), patch=4, dim=64, depth=2, heads=4)(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """
    channels, height, width = check_image(input_shape, patch, f"resize the images, or lower patch={patch}")
    if height % patch or width % patch:
        raise ValueError(f"input_shape={input_shape}: height and width must be multiples of patch={patch}")
    if dim % heads:
        raise ValueError(
            f"dim={dim} must be a multiple of heads={heads}; choose e.g. dim={dim // heads * heads}"
        )
    embedding = Embedding(channels, (height // patch) * (width // patch), patch, dim)
    hidden = 4 * dim if mlp_dim is None else mlp_dim
    blocks = [Block(dim, heads, hidden, dropout) for _ in range(depth)]
    return ViT(embedding, blocks, dim, num_outputs)
