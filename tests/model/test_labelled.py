"""Models of networks that take labels by keyword: what a call returns, in units that its loops expect."""

import copy
import pickle
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from transformers_models import HEADS, Examples, bert, gpt2, transformers

import bayesify as bf

NUM_DATA = 200


def made(head: str, method: object = None) -> bf.BayesianModule:
    torch.manual_seed(0)
    make, likelihood = HEADS[head]
    return bf.bayesify(make(), method or bf.MonteCarloVI(), likelihood, num_data=NUM_DATA)


def mean_nll(head: str, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As the heads of transformers say it: for each label that counts."""
    if head.startswith("causal"):
        logits, labels = logits[:, :-1], labels[:, 1:]
    if head == "regression":
        return -torch.distributions.Normal(logits[:, 0], 1.0).log_prob(labels).mean()
    if head == "several labels":
        return F.binary_cross_entropy_with_logits(logits, labels)
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten())


@pytest.mark.parametrize("head", HEADS)
def test_in_training_the_loss_is_the_elbo_for_each_label(head: str) -> None:
    model, data = made(head).train(), Examples(head, 10)
    out = model(**data.batch(), labels=data.labels)
    counted = data.labels[:, 1:] if head.startswith("causal") else data.labels
    per_example = int((counted != -100).sum()) / len(data)
    kl = model.kl() / NUM_DATA / per_example
    assert torch.allclose(out.loss, mean_nll(head, out.logits, data.labels) + model.kl_weight * kl, rtol=1e-5)
    out.loss.backward()
    assert all(p.grad is not None for p in model.posterior.parameters())


@pytest.mark.parametrize("head", HEADS)
def test_in_evaluation_draws_are_averaged(head: str) -> None:
    model, data = made(head).eval(), Examples(head, 10)
    model.num_draws = 7
    with torch.no_grad():
        torch.manual_seed(1)
        out = model(**data.batch(), labels=data.labels)
        torch.manual_seed(1)
        inputs = data.batch()
        if head == "to another text":
            inputs["decoder_input_ids"] = model.net._shift_right(data.labels)
        without = model(**inputs)
    torch.manual_seed(1)
    expected = model.predict(inputs, 7)
    assert expected.num_draws == 7
    assert torch.equal(out.logits, without.logits)
    if head == "regression":
        assert torch.equal(out.logits, expected.mean)
        assert torch.allclose(out.loss, -expected.log_prob(data.labels).mean())
        return
    probs = out.logits.sigmoid() if head == "several labels" else out.logits.softmax(-1)
    assert torch.allclose(probs, expected.probs, atol=1e-6)
    assert torch.allclose(out.loss, mean_nll(head, out.logits, data.labels), rtol=1e-5)


@pytest.mark.parametrize(
    "method", [bf.DeepEnsemble(bf.Point(), 3), bf.DensityPropagation(covariance="diagonal")]
)
def test_logits_of_several_passes_and_of_moments(method: bf.methods.Method) -> None:
    model, data = made("sequence", method).train(), Examples("sequence", 6)
    out = model(**data.batch(), labels=data.labels)
    assert out.logits.shape == (6, 2)
    assert out.loss.requires_grad
    assert out["loss"] is out[0] is out.loss


def test_a_method_that_scales_by_the_examples_keeps_its_scale() -> None:
    model, data = made("token", bf.IVON()).train(), Examples("token", 10)
    model.optimizer()
    torch.manual_seed(1)
    out = model(**data.batch(), labels=data.labels)
    torch.manual_seed(1)
    assert torch.allclose(out.loss, model.loss(data.batch(), data.labels).total)


def test_positional_calls_are_one_pass() -> None:
    model, data = made("sequence").eval(), Examples("sequence", 6)
    torch.manual_seed(1)
    one = model(data.ids).logits
    assert one.grad_fn is not None
    torch.manual_seed(1)
    assert torch.equal(model({"input_ids": data.ids}).logits, one)
    assert isinstance(model(data.ids, target=data.labels), bf.Loss)
    assert torch.allclose(model(data.ids, labels=data.labels).loss, torch.tensor(0.69), atol=0.1)


def test_copies_and_pickles() -> None:
    model, data = made("causal, tied").eval(), Examples("causal", 4)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert type(other) is type(model)
        assert other.net is not model.net
        torch.manual_seed(1)
        mine = model(**data.batch()).logits
        torch.manual_seed(1)
        assert torch.equal(other(**data.batch()).logits, mine)


def test_the_state_of_tied_weights_suits_safetensors_and_files_hold_them_once(tmp_path: Path) -> None:
    model = made("causal, tied")
    save_file(model.state_dict(), tmp_path / "state.safetensors")
    bf.save(model, tmp_path / "model.safetensors")
    embedding = 30 * 16 * 4
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("state", "model")]
    assert (
        sum(t.numel() * t.element_size() for t in model.state_dict().values()) - embedding
        < sizes[1]
        < sizes[0] + 9000
    )
    again = bf.load(tmp_path / "model.safetensors", gpt2())
    assert again.net.lm_head.weight is again.net.transformer.wte.weight
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.kl(), model.kl())


def test_pipelines_take_the_averaged_prediction() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = Tokenizer(models.WordLevel({"[PAD]": 0, "[UNK]": 1, "good": 2, "bad": 3}, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", model_input_names=["input_ids", "attention_mask"]
    )
    model = made("sequence").eval()
    text = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
    text("good bad")  # the first prediction finds out how weights are drawn
    torch.manual_seed(1)
    found = text("good bad", top_k=None)
    torch.manual_seed(1)
    inputs = {"input_ids": torch.tensor([[2, 3]]), "attention_mask": torch.ones(1, 2, dtype=torch.long)}
    expected = model.predict(inputs, 20).probs[0]
    scores = {row["label"]: row["score"] for row in found}
    assert scores == pytest.approx({f"LABEL_{i}": p for i, p in enumerate(expected.tolist())}, rel=1e-5)


def test_an_encoder_and_decoder_gets_its_shifted_labels() -> None:
    model, data = made("to another text").train(), Examples("to another text", 5)
    torch.manual_seed(1)
    out = model(**data.batch(), labels=data.labels)
    torch.manual_seed(1)
    shifted = model.net._shift_right(data.labels)
    again = model(**data.batch(), decoder_input_ids=shifted, labels=data.labels)
    assert torch.equal(out.loss, again.loss)
    net = model.mean_net().eval()
    assert torch.allclose(  # the labels stand where the network's own loss has them
        net(**data.batch(), labels=data.labels).loss,
        mean_nll("to another text", net(**data.batch(), decoder_input_ids=shifted).logits, data.labels),
    )


def test_what_is_refused() -> None:
    with pytest.raises(AttributeError, match=r"model.draw\(\).generate"):
        made("causal").generate(torch.zeros(1, 2, dtype=torch.long))
    model, data = made("sequence").train(), Examples("sequence", 4)
    with pytest.raises(ValueError, match="label_smoothing_factor and compute_loss_func"):
        model(**data.batch(), num_items_in_batch=4)
    with pytest.raises(RuntimeError, match="activation checkpointing"):
        model.gradient_checkpointing_enable()
    with pytest.raises(ValueError, match=r"optimizers=\(model.optimizer\(\), None\)"):
        made("sequence", bf.IVON()).train()(**data.batch(), labels=data.labels)
    answers = bf.bayesify(bert("QuestionAnswering"), "mc_vi", num_data=9, output=lambda out: out.start_logits)
    first = torch.zeros(4, dtype=torch.long)
    with pytest.raises(ValueError, match="BertForQuestionAnswering made a loss of its own"):
        answers.train()(**data.batch(), start_positions=first, end_positions=first)


def test_other_networks_are_called_as_ever() -> None:
    assert type(bf.bayesify(torch.nn.Linear(2, 2), "point")) is bf.BayesianModule
