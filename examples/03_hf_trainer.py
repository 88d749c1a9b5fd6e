"""Hugging Face: a vision transformer, made Bayesian, under transformers' own Trainer.

The network stays a transformers model (with pretrained weights: ViTForImageClassification.from_pretrained).
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


def metrics(found: Any) -> dict[str, float]:
    return {"accuracy": (found.predictions.argmax(-1) == found.label_ids).mean()}


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
    eval_strategy="epoch",
    save_strategy="epoch",
    load_best_model_at_end=True,  # of the loss of predictions averaged over draws: model.num_draws = 20
    save_total_limit=1,
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
)
trainer = Trainer(model, arguments, train_dataset=train, eval_dataset=test, compute_metrics=metrics)
trainer.train()
print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")
prediction = model.predict({"pixel_values": test.images}, num_draws=20)
print(f"mean epistemic uncertainty {prediction.epistemic.mean():.4f} nats")
