"""The Trainer of transformers, as it is, with models made Bayesian."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from transformers_models import HEADS, Examples, bert, transformers

import bayesify as bf

METHODS = {
    "mc_vi": bf.MonteCarloVI(),
    "vdp": bf.DensityPropagation(covariance="diagonal"),
    "ensemble": bf.DeepEnsemble(bf.MonteCarloVI(), 2),
    "emp": bf.EnsemblePatching(),
    "mc_dropout": bf.MCDropout(),
    "ivon": bf.IVON(),
    "atmc": bf.ThermostatMCMC(burn_in=6, every=2),
    "swag": bf.SWAG(burn_in=6, every=2),
    "variance": bf.VarianceNetwork(),
}


def trainer(model: Any, head: str, folder: Path, num: int = 64, **options: Any) -> Any:
    metrics = options.pop("compute_metrics", None)
    optimizers = options.pop("optimizers", (None, None))
    callbacks = options.pop("callbacks", None)
    settings: dict[str, Any] = {
        "per_device_train_batch_size": 16,
        "num_train_epochs": 3,
        "learning_rate": 3e-3,
        "lr_scheduler_type": "constant",
        "max_grad_norm": 0,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_steps": 1,
        "torch_compile": False,
        **options,
    }
    return transformers.Trainer(
        model=model,
        args=transformers.TrainingArguments(output_dir=str(folder), **settings),
        train_dataset=Examples(head, num),
        eval_dataset=Examples(head, 20, seed=1),
        compute_metrics=metrics,
        optimizers=optimizers,
        callbacks=callbacks,
    )


def made(head: str, method: Any = None) -> bf.BayesianModule:
    torch.manual_seed(0)
    make, likelihood = HEADS[head]
    return bf.bayesify(make(), method or bf.MonteCarloVI(), likelihood, num_data=64)


@pytest.fixture(autouse=True)
def _quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    transformers.utils.logging.set_verbosity_error()
    warnings.filterwarnings("ignore", module="transformers|torch.utils.data|accelerate")


@pytest.mark.parametrize("head", HEADS)
def test_it_trains_and_evaluates_every_head(head: str, tmp_path: Path) -> None:
    seen: list[tuple[int, ...]] = []

    def metrics(found: Any) -> dict[str, float]:
        seen.append(found.predictions.shape)
        return {"mean": float(found.predictions.mean())}

    model = made(head)
    run = trainer(model, head, tmp_path, eval_strategy="epoch", compute_metrics=metrics)
    assert run.label_names == ["labels"]
    run.train()
    losses = [row["loss"] for row in run.state.log_history if "loss" in row]
    assert len(losses) == 12 and torch.tensor(losses).isfinite().all()
    data = run.eval_dataset
    found = run.predict(data)
    assert len(seen) == 4 and seen[-1] == found.predictions.shape
    with torch.no_grad():
        expected = model(**data.batch(), labels=data.labels)
    assert torch.tensor(found.predictions).shape == expected.logits.shape
    # 20 fresh draws each: their averages differ by a few standard errors of the draws
    assert found.metrics["test_loss"] == pytest.approx(expected.loss.item(), rel=0.1)


@pytest.mark.parametrize(("head", "num"), [("sequence", 27), ("token", 27), ("causal", 27)])
def test_a_step_of_several_padded_batches_is_that_of_the_elbo(head: str, num: int, tmp_path: Path) -> None:
    """One step w ← w − ∇(Σ nll / T + (B / T) (−log p(w)) / N), T labels and B examples in all batches of the step."""
    std, lr, num_data = 0.05, 0.5, 64
    make, likelihood = HEADS[head]
    torch.manual_seed(0)
    model = bf.bayesify(make(), bf.Point(prior=bf.prior("normal", std=std)), likelihood, num_data=num_data)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    data = Examples(head, num)
    net = model.mean_net().train()
    logits, labels = net(**data.batch()).logits, data.labels
    if head == "causal":
        logits, labels = logits[:, :-1], labels[:, 1:]
    count = int((labels != -100).sum())
    nll = F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="sum") / count
    random = dict(net.named_parameters())
    prior = sum(torch.distributions.Normal(0.0, std).log_prob(w).sum() for w in random.values())
    (nll - num / count * prior / num_data).backward()
    run = trainer(
        model,
        head,
        tmp_path,
        num=num,
        per_device_train_batch_size=10,  # of 10, 10 and 7 examples
        gradient_accumulation_steps=3,
        num_train_epochs=1,
        optim="sgd",
        learning_rate=lr,
    )
    run.train()
    assert run.state.global_step == 1
    trained = dict(model.net.named_parameters())
    for name, w in random.items():
        moved = trained[name].detach() - w.detach()
        assert torch.allclose(moved, -lr * w.grad, rtol=1e-3, atol=1e-6 * lr / std**2), name
    assert run.state.log_history[0]["loss"] == pytest.approx(
        (nll - num / count * prior / num_data).item(), rel=1e-5
    )


@pytest.mark.parametrize("name", METHODS)
def test_a_resumed_run_is_the_one_that_was_not_stopped(name: str, tmp_path: Path) -> None:
    def run(resume: str | None) -> bf.BayesianModule:
        model = made("sequence", METHODS[name])
        own = model.method.own_optimizer
        options = {"num_steps": 12} if name in ("ivon", "atmc", "swag") else {}
        optimizers = (model.optimizer(1e-3, **options), None) if own else (None, None)
        it = trainer(model, "sequence", tmp_path, save_strategy="epoch", optimizers=optimizers)
        it.train(resume_from_checkpoint=resume)
        return model

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", bf.SamplingWarning)
        whole, resumed = run(None), run(str(tmp_path / "checkpoint-8"))
        first, second = whole.state_dict(), resumed.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[key], second[key]) for key in first)
    assert name != "atmc" or resumed.posterior.num_passes(20) == 3


def test_the_best_model_comes_back(tmp_path: Path) -> None:
    model = made("causal, tied")
    stop = transformers.EarlyStoppingCallback(early_stopping_patience=2)
    run = trainer(
        model,
        "causal, tied",
        tmp_path,
        learning_rate=0.3,  # it only becomes worse
        eval_strategy="epoch",
        save_strategy="epoch",
        load_best_model_at_end=True,
        callbacks=[stop],
        num_train_epochs=6,
    )
    run.train()
    assert run.state.global_step < 24
    best = Path(run.state.best_model_checkpoint) / "model.safetensors"
    from safetensors.torch import load_file

    stored, mine = load_file(best), model.state_dict()
    assert stored.keys() == mine.keys() and all(torch.equal(stored[k], mine[k]) for k in mine)
    assert model.net.lm_head.weight is model.net.transformer.wte.weight


def test_autocast_to_bfloat16(tmp_path: Path) -> None:
    model = made("sequence")
    run = trainer(model, "sequence", tmp_path, bf16=True)
    run.train()
    losses = [row["loss"] for row in run.state.log_history if "loss" in row]
    assert losses[-1] < losses[0]
    assert all(p.dtype == torch.float32 and p.isfinite().all() for p in model.parameters())
    assert run.evaluate()["eval_loss"] > 0


def test_label_smoothing_and_other_losses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="label_smoothing=0.1"):
        trainer(made("sequence"), "sequence", tmp_path, label_smoothing_factor=0.1).train()
    with pytest.raises(ValueError, match="optimizers="):
        trainer(made("sequence", bf.IVON()), "sequence", tmp_path).train()
    with pytest.raises(RuntimeError, match="activation checkpointing"):
        trainer(made("sequence"), "sequence", tmp_path, gradient_checkpointing=True).train()


def test_padding_by_a_collator_and_columns_that_no_network_takes(tmp_path: Path) -> None:
    model = bf.bayesify(bert("SequenceClassification", num_labels=2), "mc_vi", num_data=8)
    run = trainer(model, "sequence", tmp_path)
    columns = run._get_collator_with_removed_columns(lambda rows: rows, description="training")
    assert set(columns([Examples("sequence", 1)[0]])[0]) == {"input_ids", "labels"}
