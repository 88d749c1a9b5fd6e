"""The architectures that density propagation must run, each as small as its kind can be."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify import nets

Case = tuple[nn.Module, Any]  # a network with 3 outputs, and an input


def _images(size: int = 16) -> Tensor:
    return torch.randn(4, 3, size, size)


def hf_resnet() -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(embedding_size=4, hidden_sizes=[4], depths=[1], layer_type="basic", num_labels=3)
    return ResNetForImageClassification(config), _images()


def hf_vit(attention: str) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = ViTConfig(**sizes, image_size=16, patch_size=8, num_labels=3)
    config._attn_implementation = attention
    return ViTForImageClassification(config), _images()


def hf_swin() -> Case:
    from transformers import SwinConfig, SwinForImageClassification

    sizes = {"embed_dim": 8, "depths": [1], "num_heads": [2], "window_size": 2}
    return SwinForImageClassification(
        SwinConfig(**sizes, image_size=16, patch_size=4, num_labels=3)
    ), _images()


def hf_convnext() -> Case:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8], depths=[1], num_stages=1, num_labels=3)
    return ConvNextForImageClassification(config), _images()


def hf_bert() -> Case:
    from transformers import BertConfig, BertForSequenceClassification

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    config = BertConfig(**sizes, vocab_size=20, num_labels=3, max_position_embeddings=8)
    return BertForSequenceClassification(config), {"input_ids": torch.randint(20, (4, 5))}


def transformer_encoder() -> Case:
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
    return nn.Sequential(encoder, nn.Flatten(), nn.Linear(24, 3)), torch.randn(4, 3, 8)


def monai_densenet_3d() -> Case:
    pytest.importorskip("monai")
    from monai.networks.nets import DenseNet

    net = DenseNet(3, in_channels=1, out_channels=3, init_features=4, growth_rate=4, block_config=(1, 1))
    return net, torch.randn(4, 1, 16, 16, 16)


def lenet() -> Case:
    return nets.lenet_small(3, (1, 16, 16)), torch.randn(4, 1, 16, 16)


def resnet() -> Case:
    return nets.resnet_cifar(8, 3, (3, 8, 8)), _images(8)


def vit() -> Case:
    return nets.vit(3, (3, 8, 8), patch=4, dim=8, depth=1, heads=2, mlp_dim=8), _images(8)


ARCHITECTURES: dict[str, Callable[[], Case]] = {
    "transformers ResNet": hf_resnet,
    "transformers ViT, sdpa": lambda: hf_vit("sdpa"),
    "transformers ViT, eager": lambda: hf_vit("eager"),
    "transformers Swin": hf_swin,
    "transformers ConvNext": hf_convnext,
    "transformers BERT": hf_bert,
    "nn.TransformerEncoder": transformer_encoder,
    "monai DenseNet 3-D": monai_densenet_3d,
    "our LeNet": lenet,
    "our ResNet": resnet,
    "our ViT": vit,
}


def convert(name: str, **options: Any) -> tuple[bf.BayesianModule, Any, Tensor]:
    """The model, an input and a target; the same ones every time."""
    torch.manual_seed(0)
    net, x = ARCHITECTURES[name]()
    return bf.bayesify(net, bf.DensityPropagation(**options), num_data=100), x, torch.tensor([0, 1, 2, 0])


def gradients(model: nn.Module, value: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    value.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def assert_close(mine: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    """Rounding of float32 alone: the order of sums may differ."""
    assert mine.keys() == expected.keys()
    for name, gradient in expected.items():
        assert gradient.isfinite().all(), name
        slack = 1e-4 * gradient.abs().max().item() + 1e-7
        torch.testing.assert_close(
            mine[name], gradient, rtol=1e-3, atol=slack, msg=lambda m, n=name: f"{n}: {m}"
        )
