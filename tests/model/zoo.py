"""Networks that nobody here wrote, small and randomly initialised, with an input each."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations


class Case(NamedTuple):
    net: nn.Module
    x: Any
    output: Callable[[Any], Tensor] | None = None
    where: Any = None  # None: everything


def _images(size: int = 32) -> Tensor:
    return torch.randn(2, 3, size, size)


def _tokens(vocabulary: int = 40) -> dict[str, Tensor]:
    return {"input_ids": torch.randint(vocabulary, (2, 7))}


def hf_resnet() -> Case:
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1], layer_type="basic", num_labels=5
    )
    return Case(ResNetForImageClassification(config), _images())


def _vit(attention: str) -> Case:
    from transformers import ViTConfig, ViTForImageClassification

    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
        num_labels=5,
    )
    config._attn_implementation = attention
    return Case(ViTForImageClassification(config), _images())


def hf_vit_sdpa() -> Case:
    return _vit("sdpa")


def hf_vit_eager() -> Case:
    return _vit("eager")


def hf_swin() -> Case:
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(
        image_size=32, patch_size=4, embed_dim=8, depths=[1, 1], num_heads=[1, 2], window_size=4, num_labels=5
    )
    return Case(SwinForImageClassification(config), _images())


def hf_convnext() -> Case:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, num_labels=5)
    return Case(ConvNextForImageClassification(config), _images())


def hf_bert() -> Case:
    from transformers import BertConfig, BertForSequenceClassification

    config = BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=5,
        max_position_embeddings=16,
    )
    return Case(BertForSequenceClassification(config), _tokens())


def hf_gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=40, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    return Case(GPT2LMHeadModel(config), _tokens())


def monai_unet_3d() -> Case:
    pytest.importorskip("monai")
    from monai.networks.nets import UNet

    net = UNet(spatial_dims=3, in_channels=1, out_channels=2, channels=(4, 8, 16), strides=(2, 2))
    return Case(net, torch.randn(2, 1, 16, 16, 16))


def monai_basic_unet() -> Case:
    """Its skip connections are there for a Tensor alone: it asks isinstance."""
    pytest.importorskip("monai")
    from monai.networks.nets import BasicUNet

    net = BasicUNet(spatial_dims=2, in_channels=1, out_channels=2, features=(4,) * 6, norm="batch")
    return Case(net, torch.randn(2, 1, 32, 32))


def monai_densenet_3d() -> Case:
    pytest.importorskip("monai")
    from monai.networks.nets import DenseNet

    net = DenseNet(
        spatial_dims=3, in_channels=1, out_channels=3, init_features=8, growth_rate=4, block_config=(2, 2)
    )
    return Case(net, torch.randn(2, 1, 16, 16, 16))


def transformer_encoder_layer() -> Case:
    return Case(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), torch.randn(2, 5, 16))


def transformer_encoder() -> Case:
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    return Case(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), torch.randn(2, 5, 16))


def multihead_attention() -> Case:
    x = torch.randn(2, 5, 16)
    return Case(nn.MultiheadAttention(16, 2, batch_first=True), (x, x, x), output=lambda out: out[0])


def lstm_two_layers_bidirectional() -> Case:
    net = nn.LSTM(6, 8, num_layers=2, bidirectional=True, batch_first=True)
    return Case(net, torch.randn(2, 5, 6), output=lambda out: out[0])


def gru() -> Case:
    return Case(nn.GRU(6, 8, batch_first=True), torch.randn(2, 5, 6), output=lambda out: out[0])


def embedding() -> Case:
    return Case(nn.Sequential(nn.Embedding(20, 6), nn.Flatten(), nn.Linear(24, 3)), torch.randint(20, (2, 4)))


def reflect_padding() -> Case:
    return Case(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"), _images(8))


def non_square_kernel() -> Case:
    return Case(nn.Conv2d(3, 4, (1, 5), stride=(2, 1), padding=(0, 2), dilation=(1, 2)), _images(12))


def grouped_conv() -> Case:
    return Case(nn.Conv2d(6, 12, 3, groups=3), torch.randn(2, 6, 8, 8))


def depthwise_conv() -> Case:
    return Case(nn.Conv1d(6, 6, 3, groups=6, bias=False), torch.randn(2, 6, 9))


def transposed_conv() -> Case:
    return Case(nn.ConvTranspose2d(3, 5, 3, stride=2, output_padding=1, padding=1), _images(6))


def root_linear() -> Case:
    return Case(nn.Linear(6, 3), torch.randn(2, 6))


def weight_norm() -> Case:
    net = nn.Sequential(parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), nn.ReLU(), nn.Flatten())
    return Case(net, _images(6))


def spectral_norm() -> Case:
    return Case(nn.Sequential(parametrizations.spectral_norm(nn.Linear(6, 4)), nn.Tanh()), torch.randn(2, 6))


def root_parametrized() -> Case:
    return Case(parametrizations.weight_norm(nn.Linear(6, 4)), torch.randn(2, 6))


def tied_linear() -> Case:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Linear(6, 6)
            self.decode = nn.Linear(6, 6)
            self.decode.weight = self.encode.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.decode(self.encode(x).relu())

    return Case(Tied(), torch.randn(2, 6))


def peft_lora() -> Case:
    import peft
    from transformers import BertConfig, BertForSequenceClassification

    import bayesify as bf

    config = BertConfig(
        vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32
    )
    lora = peft.LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights="gaussian")
    net = peft.get_peft_model(BertForSequenceClassification(config), lora)
    for name, parameter in net.named_parameters():
        if "lora_B" in name:  # starts at zero; a draw of B alone already moves the output
            nn.init.normal_(parameter, std=0.1)
    return Case(net, _tokens(), where=bf.where.matching("lora"))


ZOO: dict[str, Callable[[], Case]] = {
    "transformers ResNet": hf_resnet,
    "transformers ViT, sdpa": hf_vit_sdpa,
    "transformers ViT, eager": hf_vit_eager,
    "transformers Swin": hf_swin,
    "transformers ConvNext": hf_convnext,
    "transformers BERT": hf_bert,
    "transformers GPT-2, tied embeddings": hf_gpt2,
    "monai UNet 3-D": monai_unet_3d,
    "monai BasicUNet": monai_basic_unet,
    "monai DenseNet 3-D": monai_densenet_3d,
    "nn.TransformerEncoderLayer": transformer_encoder_layer,
    "nn.TransformerEncoder": transformer_encoder,
    "nn.MultiheadAttention": multihead_attention,
    "nn.LSTM, 2 layers, bidirectional": lstm_two_layers_bidirectional,
    "nn.GRU": gru,
    "nn.Embedding": embedding,
    "padding_mode reflect": reflect_padding,
    "non-square kernel": non_square_kernel,
    "grouped conv": grouped_conv,
    "depthwise conv": depthwise_conv,
    "transposed conv": transposed_conv,
    "root nn.Linear": root_linear,
    "weight norm": weight_norm,
    "spectral norm": spectral_norm,
    "root parametrized": root_parametrized,
    "tied linear layers": tied_linear,
    "peft LoRA adapters": peft_lora,
}
