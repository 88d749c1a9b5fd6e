"""Operations under vmap for a program of free batch: the numbers of vmap's own rules."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesify.files.derivatives import traced
from bayesify.passes.joined import Joined

IMAGE, TOKENS = (4, 6, 6), (5, 8)
S = 3  # draws


def conv(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w[: 4 * 4 * 9].view(4, 4, 3, 3), w[:4], padding=1)


KERNEL = torch.randn(4, 2, 3, 3)
OPERATIONS: dict[str, tuple[tuple[int, ...], Callable[[Tensor, Tensor], Tensor]]] = {
    "own kernels": (IMAGE, conv),
    "own kernels, own input": (IMAGE, lambda x, w: conv(x * w[0], w)),
    "shared kernels, in groups": (IMAGE, lambda x, w: F.conv2d(x * w[0], KERNEL, groups=2)),
    "own kernels, in groups": (IMAGE, lambda x, w: F.conv2d(x, w[:72].view(4, 2, 3, 3), stride=2, groups=2)),
    "own bias": (IMAGE, lambda x, w: F.conv2d(x, KERNEL, w[:4], groups=2)),
    "max pool": (IMAGE, lambda x, w: F.max_pool2d(x * w[0], 2)),
    "average pool": (IMAGE, lambda x, w: F.adaptive_avg_pool2d(F.avg_pool2d(x * w[0], 2), 3)),
    "group norm": (IMAGE, lambda x, w: F.group_norm(x * w[0], 2, w[:4], w[4:8])),
    "own linear of tokens": (TOKENS, lambda x, w: F.linear(x, w[:24].view(3, 8), w[:3])),
    "shared linear of tokens": (TOKENS, lambda x, w: F.linear(x * w[0], torch.ones(3, 8))),
    "linear of what is shared": (TOKENS, lambda x, w: F.linear(x, torch.ones(3, 8)) * w[0]),
    "layer norm": (TOKENS, lambda x, w: F.layer_norm(x * w[0] + F.layer_norm(x, (8,)), (8,), w[:8])),
    "attention": (TOKENS, lambda x, w: F.scaled_dot_product_attention(x * w[:8], x, x, is_causal=True)),
    "multi-head attention": (
        TOKENS,
        lambda x, w: nn.functional.multi_head_attention_forward(
            *(x.transpose(0, 1) * w[0],) * 3, 8, 2, w[:192].view(24, 8), None, None, None, False, 0.0,
            torch.eye(8), None, False, need_weights=False,
        )[0].transpose(0, 1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_program_of_free_batch_gives_what_vmap_gives(name: str) -> None:
    shape, operation = OPERATIONS[name]
    weights = torch.randn(S, 192)

    class Program(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with Joined():
                return torch.func.vmap(lambda w: operation(x, w))(weights)

    x = torch.randn(4, *shape)
    batch = ({0: torch.export.Dim("batch")},)
    program = torch.export.export(traced(Program(), (x,)), (x,), dynamic_shapes=batch).module()
    more = torch.randn(7, *shape)
    expected = torch.stack([operation(more, w) for w in weights])
    torch.testing.assert_close(program(more), expected, rtol=1e-4, atol=1e-4)
