"""A language model with random LoRA adapters: every sequence is written by one draw of them.

The base network stays as it is; only the adapters are random, and trained by transformers' own Trainer. A draw is a
plain PEFT network: its weights are the same for all tokens of a sequence, so its key-value cache is valid.
"""

import tempfile

import torch
from peft import LoraConfig, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
from transformers.utils import logging

import bayesify as bf

TOKENS, LENGTH = 20, 10


def counting(step: int) -> list[dict[str, torch.Tensor]]:
    """Sequences a, a + step, a + 2 step, … modulo the number of tokens, from each of them."""
    ids = [(start + step * torch.arange(LENGTH)) % TOKENS for start in range(TOKENS)]
    return [{"input_ids": each, "labels": each} for each in ids]


def train(model: torch.nn.Module, data: list[dict[str, torch.Tensor]], epochs: int, lr: float) -> None:
    quiet = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    arguments = TrainingArguments(tempfile.mkdtemp(), num_train_epochs=epochs, learning_rate=lr, **quiet)
    Trainer(model, arguments, train_dataset=data).train()


logging.set_verbosity_error()
torch.manual_seed(0)
sizes = {"n_embd": 32, "n_layer": 2, "n_head": 2, "vocab_size": TOKENS, "n_positions": LENGTH}
no_end = {"bos_token_id": None, "eos_token_id": None, "pad_token_id": 0}
base = GPT2LMHeadModel(GPT2Config(**sizes, **no_end, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
train(base, counting(1) + counting(2), epochs=60, lr=3e-3)  # "pretraining"

# adapters learn to count by three
net = get_peft_model(base, LoraConfig(r=4, target_modules=["c_attn", "c_fc"], fan_in_fan_out=True))
data = counting(3)
model = bf.bayesify(net, bf.MonteCarloVI(kl_weight=0.2, init_std=0.2), num_data=len(data))
train(model, data, epochs=200, lr=1e-2)

generator = torch.Generator().manual_seed(0)
model.eval()
for name, start in {"by three, as trained": [4, 7, 10], "by two, as before": [4, 6, 8]}.items():
    prompt = torch.tensor([start])
    written = [model.draw(generator).generate(prompt, max_length=LENGTH, do_sample=False) for _ in range(8)]
    sequences = torch.cat(written)  # one draw of the adapters each
    said = model.predict({"input_ids": sequences}, num_draws=30, generator=generator)
    unsure = said.epistemic[
        :, len(start) - 1 : -1
    ]  # nats that the draws disagree on, of each token that was written
    print(f"{name}: {len(sequences.unique(dim=0))} different sequences by 8 draws")
    print(f"  first token {unsure[:, 0].mean():.3f} nats, whole sequence {unsure.sum(1).mean():.2f} nats")
    for sequence in sequences.unique(dim=0)[:3].tolist():
        print("  " + " ".join(f"{token:2d}" for token in sequence))
