"""Folders for the Hugging Face Hub: what is in them, what comes back, and what their files cannot do."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers_models import HEADS, Examples, bert, gpt2, transformers

import bayesify as bf

pytest.importorskip("huggingface_hub")
METHODS = {
    "mc_vi": bf.MonteCarloVI(prior=bf.prior("laplace")),
    "ensemble": bf.DeepEnsemble(bf.MonteCarloVI(), 2),
    "emp": bf.EnsemblePatching(),
    "ivon": bf.IVON(),
}


def made(head: str, method: Any = "mc_vi") -> bf.BayesianModule:
    make, likelihood = HEADS[head]
    return bf.bayesify(make(), method, likelihood, num_data=50).eval()


def same(a: bf.BayesianModule, b: bf.BayesianModule) -> bool:
    mine, other = a.state_dict(), b.state_dict()
    return mine.keys() == other.keys() and all(torch.equal(mine[key], other[key]) for key in mine)


@pytest.mark.parametrize("head", HEADS)
def test_every_head_comes_back_without_its_network(head: str, tmp_path: Path) -> None:
    model, data = made(head), Examples(head, 4)
    bf.hub.save_pretrained(model, tmp_path / "it")
    assert {path.name for path in (tmp_path / "it").iterdir()} == {
        "model.safetensors",
        "config.json",
        "README.md",
    }
    again = bf.hub.from_pretrained(tmp_path / "it").eval()
    assert type(again.net) is type(model.net) and same(model, again)
    torch.manual_seed(1)
    expected = model(**data.batch(), labels=data.labels).logits
    torch.manual_seed(1)
    assert torch.equal(again(**data.batch(), labels=data.labels).logits, expected)
    assert transformers.AutoConfig.from_pretrained(tmp_path / "it").model_type == model.config.model_type


@pytest.mark.parametrize("name", METHODS)
def test_every_kind_of_method_comes_back(name: str, tmp_path: Path) -> None:
    model = made("sequence", METHODS[name])
    bf.hub.save_pretrained(model, tmp_path)
    again = bf.hub.from_pretrained(tmp_path)
    assert same(model, again) and again.method.options() == model.method.options()


def test_the_card_says_method_data_metrics_and_how_to_load(tmp_path: Path) -> None:
    model = made("sequence", bf.MonteCarloVI(kl_weight=0.25))
    bf.hub.save_pretrained(model, tmp_path, data="Reviews of {{ films }}.")
    bf.hub.save_pretrained(
        model, tmp_path, data="Reviews of {{ films }}.", metrics={"accuracy": 0.91234, "ece": 0.02}
    )
    card = (tmp_path / "README.md").read_text()
    for text in (
        "library_name: bayesify",
        "# BertForSequenceClassification, Bayesian by mc_vi",
        '"kl_weight": 0.25',
    ):
        assert text in card
    for text in (
        "Reviews of {{ films }}.",
        "| accuracy | 0.9123 |",
        "bf.hub.from_pretrained(",
        '"num_data": 50',
    ):
        assert text in card


def test_a_network_in_half_precision_comes_back_as_it_is(tmp_path: Path) -> None:
    model = bf.bayesify(bert("SequenceClassification", num_labels=2).bfloat16(), "mc_vi", num_data=50)
    bf.hub.save_pretrained(model, tmp_path)
    again = bf.hub.from_pretrained(tmp_path)
    assert same(model, again) and again.net.dtype == torch.bfloat16


def test_other_networks_are_given(tmp_path: Path) -> None:
    model = bf.bayesify(nn.Linear(3, 2), "mc_vi", num_data=9)
    bf.hub.save_pretrained(model, tmp_path)
    assert not (tmp_path / "config.json").exists()
    assert "net=net)" in (tmp_path / "README.md").read_text()
    with pytest.raises(ValueError, match="give from_pretrained"):
        bf.hub.from_pretrained(tmp_path)
    assert same(model, bf.hub.from_pretrained(tmp_path, net=nn.Linear(3, 2)))


def spoiled(folder: Path, **changes: Any) -> Path:
    model = bf.bayesify(gpt2(), "mc_vi", num_data=9)
    bf.hub.save_pretrained(model, folder)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return folder


@pytest.mark.parametrize(
    "name", ["os", "Trainer", "pipeline", "GPT2Config", "../x", "", 3, None, "models.gpt2"]
)
def test_only_networks_of_transformers_are_made(name: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no network of transformers"):
        bf.hub.from_pretrained(spoiled(tmp_path, architectures=[name]))


def test_a_configuration_fetches_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('run')")
    code = {"AutoModelForCausalLM": "evil.Evil", "AutoConfig": "evil.Evil"}
    names = {
        "attn_implementation": "someone/kernel",
        "_attn_implementation": "someone/kernel",
        "use_kernels": True,
    }
    folder = spoiled(tmp_path, auto_map=code, trust_remote_code=True, quantization_config={"a": 1}, **names)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("it called somebody"))
    net = bf.hub.from_pretrained(folder).net
    assert type(net) is transformers.GPT2LMHeadModel and net.config._attn_implementation in ("sdpa", "eager")


def test_a_network_that_is_not_that_of_the_file_costs_no_memory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        bf.hub.from_pretrained(spoiled(tmp_path, vocab_size=10**12))
    with pytest.raises(ValueError, match="config.json"):
        bf.hub.from_pretrained(spoiled(tmp_path, n_layer="many"))


def test_it_is_sent_as_it_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import HfApi

    sent: list[Any] = []
    monkeypatch.setattr(
        HfApi, "create_repo", lambda self, repo_id, **_: type("Url", (), {"repo_id": repo_id})
    )

    def upload(self: Any, *, folder_path: Any, repo_id: str, **_: Any) -> str:
        sent.append((repo_id, sorted(path.name for path in Path(folder_path).iterdir())))
        return "address"

    monkeypatch.setattr(HfApi, "upload_folder", upload)
    assert bf.hub.push_to_hub(made("sequence"), "me/model", data="x", metrics={"nll": 0.3}) == "address"
    assert sent == [("me/model", ["README.md", "config.json", "model.safetensors"])]


def test_bad_arguments_are_named(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="model=Linear must be what bf.bayesify returned"):
        bf.hub.save_pretrained(nn.Linear(2, 2), tmp_path)
    with pytest.raises(TypeError, match="path=3"):
        bf.hub.from_pretrained(3)
