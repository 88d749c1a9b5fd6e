"""Hugging Face: a vision transformer, made Bayesian, under transformers' own Trainer.

The network stays a transformers model (with pretrained weights: ViTForImageClassification.from_pretrained);
the Trainer only has to take the loss from `model(x, target=y)`.
"""

import tempfile
from typing import Any

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments, ViTConfig, ViTForImageClassification
from transformers.utils import logging

import bayesify as bf


class Corners(Dataset):
    """Noisy images 16×16 with one bright corner; the class says which."""

    def __init__(self, num: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(4, (num,), generator=generator)
        self.images = torch.randn(num, 3, 16, 16, generator=generator)
        for image, label in zip(self.images, self.labels.tolist(), strict=True):
            row, column = divmod(label, 2)
            image[:, 8 * row : 8 * row + 8, 8 * column : 8 * column + 8] += 2

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {"pixel_values": self.images[i], "labels": self.labels[i]}


class BayesianTrainer(Trainer):
    def compute_loss(self, model: Any, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> torch.Tensor:
        labels = inputs.pop("labels")
        return model(inputs, target=labels).total  # a dict is passed on as keyword arguments


logging.set_verbosity_error()
torch.manual_seed(0)
sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
net = ViTForImageClassification(ViTConfig(**sizes, image_size=16, patch_size=8, num_labels=4))
train, test = Corners(1024, seed=0), Corners(256, seed=1)
method = bf.MonteCarloVI(where=bf.where.linear, kl_weight=0.1)  # attention and dense layers, a cold posterior
model = bf.bayesify(net, method, num_data=len(train))

arguments = TrainingArguments(
    output_dir=tempfile.mkdtemp(),
    num_train_epochs=20,
    per_device_train_batch_size=64,
    learning_rate=2e-3,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    remove_unused_columns=False,
)
BayesianTrainer(model=model, args=arguments, train_dataset=train).train()
prediction = model.predict({"pixel_values": test.images}, num_draws=20)  # the output's .logits are found
print(f"accuracy {(prediction.label == test.labels).float().mean():.3f}")
print(f"mean epistemic uncertainty {prediction.epistemic.mean():.4f} nats")
