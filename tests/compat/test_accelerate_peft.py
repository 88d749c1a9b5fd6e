"""accelerate's loop and PEFT's adapters, as they are, with models made Bayesian."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from transformers_models import Examples, bert, gpt2, transformers

import bayesify as bf

accelerate = pytest.importorskip("accelerate")
peft = pytest.importorskip("peft")


def batches(head: str = "sequence") -> DataLoader:
    data = Examples(head, 32)
    rows = [{k: v for k, v in data[i].items() if k != "number"} for i in range(len(data))]
    return DataLoader(rows, batch_size=8, shuffle=True)


def lora(net: torch.nn.Module, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return peft.get_peft_model(net, peft.LoraConfig(r=2, **options))


def adapted_gpt2() -> Any:
    return lora(gpt2(), target_modules=["c_attn"], fan_in_fan_out=True, task_type="CAUSAL_LM")


@pytest.mark.parametrize("precision", ["no", "bf16"])
@pytest.mark.parametrize("method", [bf.MonteCarloVI(), bf.IVON()], ids=["mc_vi", "ivon"])
def test_a_loop_of_accelerate_goes_on_where_it_was_saved(method: Any, precision: str, tmp_path: Path) -> None:
    def run(epochs: int, resume: bool) -> dict[str, torch.Tensor]:
        accelerate.state.AcceleratorState._reset_state(True)
        accelerator = accelerate.Accelerator(
            cpu=True, mixed_precision=precision, gradient_accumulation_steps=2
        )
        torch.manual_seed(0)
        net = bert("SequenceClassification", num_labels=2)
        model = bf.bayesify(net, method, num_data=32)
        parts = accelerator.prepare(model, model.optimizer(1e-3), batches())
        prepared, optimizer, loader = parts
        if resume:
            accelerator.load_state(str(tmp_path))
        for epoch in range(epochs):
            for batch in loader:
                with accelerator.accumulate(prepared):
                    out = prepared(**batch)
                    accelerator.backward(out.loss)
                    optimizer.step()
                    optimizer.zero_grad()
            if epochs == 3 and epoch == 1:
                accelerator.save_state(str(tmp_path))
        assert isinstance(accelerator.unwrap_model(prepared), bf.BayesianModule)
        prepared.eval()
        assert torch.allclose(prepared(**batch).logits.float().softmax(-1).sum(-1), torch.ones(8), atol=1e-2)
        return model.state_dict()

    whole, resumed = run(3, resume=False), run(1, resume=True)
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    accelerate.state.AcceleratorState._reset_state(True)


def test_adapters_are_random_and_the_base_stays_as_it_is() -> None:
    model = bf.bayesify(adapted_gpt2(), bf.MonteCarloVI(), num_data=32)
    assert all("lora_" in w.name for w in model.selection.random)
    before = {name: p.clone() for name, p in model.net.named_parameters() if "lora_" not in name}
    data = Examples("causal", 8)
    optimizer = model.optimizer(1e-2)
    for _ in range(3):
        optimizer.zero_grad()
        model.train()(**data.batch(), labels=data.labels).loss.backward()
        optimizer.step()
    assert all(torch.equal(p, before[n]) for n, p in model.net.named_parameters() if n in before)
    assert model.loss_type == "ForCausalLM" and model.likelihood.class_dim == -1
    assert type(model).__name__ == "BayesianGPT2LMHeadModel"


def test_the_trainer_takes_adapters_and_draws_are_merged(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = lora(bert("SequenceClassification", num_labels=2), target_modules=["query"], task_type="SEQ_CLS")
    model = bf.bayesify(net, bf.MonteCarloVI(), num_data=32)
    settings = {"use_cpu": True, "report_to": [], "disable_tqdm": True, "save_strategy": "epoch"}
    arguments = transformers.TrainingArguments(output_dir=str(tmp_path), num_train_epochs=2, **settings)
    trainer = transformers.Trainer(
        model, arguments, train_dataset=Examples("sequence", 32), eval_dataset=Examples("sequence", 8)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of torch's loader, on a machine without pinned memory
        trainer.train()
        trained = {key: value.clone() for key, value in model.state_dict().items()}
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert all(torch.equal(trained[key], value) for key, value in model.state_dict().items())
    assert trainer.evaluate()["eval_loss"] > 0
    drawn = model.eval().draw(torch.Generator().manual_seed(1))
    ids = Examples("sequence", 4).ids
    merged = drawn.merge_and_unload()
    assert type(merged) is transformers.BertForSequenceClassification
    with torch.no_grad():
        torch.manual_seed(1)
        weights = model.draw(torch.Generator().manual_seed(1))
        assert torch.allclose(merged(ids).logits, weights(ids).logits, atol=1e-5)


def test_files_and_folders_of_adapters(tmp_path: Path) -> None:
    model = bf.bayesify(adapted_gpt2(), bf.MonteCarloVI(), num_data=32)
    bf.hub.save_pretrained(model, tmp_path)
    with pytest.raises(ValueError, match="net="):
        bf.hub.from_pretrained(tmp_path)
    again = bf.hub.from_pretrained(tmp_path, net=adapted_gpt2())
    assert all(torch.equal(value, again.state_dict()[key]) for key, value in model.state_dict().items())
