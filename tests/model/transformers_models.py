"""Small networks of transformers, of every kind of head, and data for them."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

transformers = pytest.importorskip("transformers")

VOCABULARY, TOKENS = 30, 7
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 16,
}


def bert(head: str, **options: object) -> nn.Module:
    return getattr(transformers, f"BertFor{head}")(transformers.BertConfig(**SIZES, **options))


def gpt2(**options: object) -> nn.Module:
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "vocab_size": VOCABULARY, "n_positions": 16}
    tokens = {"bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **tokens, **options))


def llama() -> nn.Module:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES, num_key_value_heads=2))


def t5() -> nn.Module:
    sizes = {"d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1, "num_heads": 2, "vocab_size": VOCABULARY}
    return transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes, decoder_start_token_id=0))


def vit() -> nn.Module:
    sizes = {k: v for k, v in SIZES.items() if k not in ("vocab_size", "max_position_embeddings")}
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=3)
    )


#: name -> (network, likelihood)
HEADS = {
    "sequence": (lambda: bert("SequenceClassification", num_labels=2), "categorical"),
    "regression": (lambda: bert("SequenceClassification", num_labels=1), "normal"),
    "several labels": (
        lambda: bert("SequenceClassification", num_labels=2, problem_type="multi_label_classification"),
        "bernoulli",
    ),
    "token": (lambda: bert("TokenClassification", num_labels=2), "categorical"),
    "masked": (lambda: bert("MaskedLM"), "categorical"),
    "causal, tied": (gpt2, "categorical"),
    "causal": (llama, "categorical"),
    "to another text": (t5, "categorical"),
    "image": (vit, "categorical"),
}


class Examples(Dataset):
    """Examples for a head, with a column that no network takes."""

    def __init__(self, head: str, num: int, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.ids = torch.randint(1, VOCABULARY, (num, TOKENS), generator=generator)
        self.images = torch.randn(num, 3, 8, 8, generator=generator)
        first = self.ids[:, 0] > VOCABULARY // 2
        self.labels: Tensor = {
            "sequence": first.long(),
            "regression": self.ids[:, 0] / VOCABULARY,
            "several labels": (self.ids[:, :2] > VOCABULARY // 2).float(),
            "token": (self.ids > VOCABULARY // 2).long(),
            "image": self.images.mean((1, 2, 3)).gt(0).long(),
        }.get(head, self.ids.clone())
        if self.labels.shape == self.ids.shape:  # padded ones, of lengths that differ
            length = torch.randint(2, TOKENS + 1, (num, 1), generator=generator)
            self.labels[torch.arange(TOKENS) >= length] = -100
        self.is_image = head == "image"

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict[str, object]:
        inputs = {"pixel_values": self.images[i]} if self.is_image else {"input_ids": self.ids[i]}
        return {**inputs, "labels": self.labels[i], "number": i}

    def batch(self) -> dict[str, Tensor]:
        return {"pixel_values": self.images} if self.is_image else {"input_ids": self.ids}
