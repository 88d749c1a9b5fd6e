"""A LightningModule: the model sits inside it, and Lightning's Trainer does the rest.

Needs the package `pytorch-lightning` (which comes with `lightning` too).
"""

import warnings

import pytorch_lightning as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import bayesify as bf
from bayesify.data import load


class Digits(pl.LightningModule):
    """Handwritten digits by Monte-Carlo variational inference."""

    def __init__(self, num_data: int) -> None:
        super().__init__()
        net = nn.Sequential(nn.Flatten(), nn.Linear(64, 100), nn.ReLU(), nn.Linear(100, 10))
        self.model = bf.bayesify(net, bf.MonteCarloVI(), num_data=num_data)

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        x, y = batch
        loss = self.model(x, target=y)  # the same as model.loss(x, y), and right under DDP and FSDP too
        self.log_dict({"nll": loss.nll, "kl": loss.kl})
        return loss.total

    def validation_step(self, batch: tuple[Tensor, Tensor], index: int) -> None:
        x, y = batch
        prediction = self.model.predict(x, num_draws=20)
        self.log("accuracy", (prediction.label == y).float().mean())
        self.log("epistemic", prediction.epistemic.mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.model.optimizer(lr=3e-3)


warnings.filterwarnings("ignore", ".*does not have many workers.*")
pl.seed_everything(0, verbose=False)
data = load("digits")
train = TensorDataset(data.train.inputs, data.train.targets)
test = TensorDataset(data.test.inputs, data.test.targets)
module = Digits(num_data=len(train))
quiet = {
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
trainer = pl.Trainer(max_epochs=15, accelerator="cpu", **quiet)
trainer.fit(module, DataLoader(train, batch_size=64, shuffle=True), DataLoader(test, batch_size=512))
print({name: round(float(value), 3) for name, value in trainer.callback_metrics.items()})
