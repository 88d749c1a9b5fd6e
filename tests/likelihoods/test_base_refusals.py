"""A likelihood of one's own with a member that is wrong: the error names the class and what is wanted."""

from pathlib import Path
from typing import Any

import pytest
import torch
from likelihood_cases import SLOPE, OwnStudentT, X
from torch import Tensor, nn

import bayesify as bf
from bayesify.likelihoods import LIKELIHOODS

TWO = torch.cat([SLOPE, SLOPE], 1)


class Unsummed(OwnStudentT):
    name = "unsummed"

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return -(target - output).square()


class Scalar(OwnStudentT):
    name = "scalar"

    def log_prob(self, output: Tensor, target: Tensor) -> Tensor:
        return -(target - output).square().sum()


@pytest.mark.parametrize(("law", "shape"), [(Unsummed, r"\(\d+, 2\)"), (Scalar, r"\(\)")])
@pytest.mark.parametrize(
    "method", [bf.Point(), bf.MonteCarloVI(num_likelihood_draws=4), bf.DensityPropagation()]
)
def test_a_log_likelihood_has_one_number_per_example(method: Any, law: Any, shape: str) -> None:
    model = bf.bayesify(nn.Linear(3, 2), method, law(), num_data=40, example=X)
    message = rf"{law.__name__}\.log_prob returned shape {shape}: .*shape \(\d+,\): sum over all but"
    with pytest.raises(TypeError, match=message):
        model.loss(X, TWO)


def test_a_compiled_loss_stays_one_graph() -> None:
    model = bf.bayesify(nn.Linear(3, 2), bf.Point(), OwnStudentT())
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    assert torch.equal(compiled(X, target=TWO).total, model(X, target=TWO).total)


def test_a_check_gives_the_target() -> None:
    class Silent(OwnStudentT):
        def check(self, output: Tensor, target: Tensor, values: bool) -> Tensor:
            pass  # type: ignore[return-value]

    for method in (bf.Point(), bf.MonteCarloVI(num_likelihood_draws=2), bf.DensityPropagation()):
        model = bf.bayesify(nn.Linear(3, 1), method, Silent(), num_data=40, example=X)
        with pytest.raises(TypeError, match=r"Silent\.check returned NoneType: it must return the target"):
            model.loss(X, SLOPE)


@pytest.mark.parametrize("rows", [1, 2, 40])
def test_a_summary_is_a_pair(rows: int) -> None:
    class MeanAlone(OwnStudentT):
        def summarize(self, output: Tensor) -> tuple[Tensor, Tensor]:
            return output  # type: ignore[return-value]

    model = bf.bayesify(nn.Linear(3, 1), bf.MonteCarloVI(), MeanAlone(), num_data=40)
    with pytest.raises(TypeError, match=r"MeanAlone\.summarize returned shape .*: it must return a pair, "):
        model.predict(X[:rows], num_draws=2)


@pytest.mark.parametrize("member", ["name", "task"])
def test_name_and_task_are_needed(member: str) -> None:
    nameless = type("Nameless", (OwnStudentT,), {member: None})
    with pytest.raises(TypeError, match=f"likelihood Nameless has no {member}: write {member} = "):
        bf.bayesify(nn.Linear(3, 1), bf.Point(), nameless())


def test_options_are_plain_data() -> None:
    for options in ({"scale": torch.ones(())}, [1.0], {"scale": float("nan")}):
        law = type("Odd", (OwnStudentT,), {"options": options})
        with pytest.raises(
            TypeError, match=r"likelihood Odd: options=.* must be a dict of finite numbers, .*float"
        ):
            bf.bayesify(nn.Linear(3, 1), bf.Point(), law())


def test_a_subclass_needs_a_name_of_its_own() -> None:
    class Wider(LIKELIHOODS["normal"]):  # type: ignore[misc]
        """It would be loaded as its parent."""

    with pytest.raises(ValueError, match=r"likelihood Wider has the name of another, 'normal': give it one"):
        bf.bayesify(nn.Linear(3, 1), bf.Point(), Wider())


class Learner(OwnStudentT):
    """Its scale is an option that training changes."""

    name = "learner"

    @property
    def options(self) -> dict[str, Any]:
        return {"log_scale": float(self.log_scale.detach())}


def test_what_training_changes_belongs_into_learned(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.safetensors" for i in range(2)]
    laws = [Learner(), Learner()]
    laws[0].log_scale.data.fill_(-1.0)
    for path, law in zip(paths, laws, strict=True):
        bf.save(bf.bayesify(nn.Linear(3, 1), bf.Point(), law), path)
    for found in (
        lambda: bf.load(paths[0], nn.Linear(3, 1), likelihood=Learner()),
        lambda: bf.merge(paths, nn.Linear(3, 1), likelihood=Learner()),
    ):
        with pytest.raises(
            ValueError, match=r"log_scale .*options that training changes belong into `learned`"
        ):
            found()
    Learner.learned = ("log_scale",)
    assert float(bf.load(paths[0], nn.Linear(3, 1), likelihood=Learner()).likelihood.log_scale.detach()) == -1


def test_a_merge_names_what_training_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Registered(Learner):
        name = "registered"
        learned = ()

        def __init__(self, log_scale: float = -2.3) -> None:
            super().__init__()
            self.log_scale.data.fill_(log_scale)

    monkeypatch.setitem(LIKELIHOODS, "registered", Registered)
    paths = [tmp_path / f"{i}.safetensors" for i in range(2)]
    for i, path in enumerate(paths):
        bf.save(bf.bayesify(nn.Linear(3, 1), bf.Point(), Registered(-1.0 - i)), path)
    with pytest.raises(ValueError, match=r"likelihood\.log_scale is .*belong into `learned`"):
        bf.merge(paths, nn.Linear(3, 1))


def test_counts_that_are_not_called_discrete_are_told_apart_in_calibration() -> None:
    class Counts(LIKELIHOODS["poisson"]):  # type: ignore[misc]
        name = "counts"
        is_discrete = False

    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), Counts())
    with pytest.raises(
        ValueError, match=r"needs counts.*whole numbers, is_discrete = True, are not calibrated"
    ):
        bf.calibrate(model, [(X, (1 + SLOPE).exp().round())])


def test_sample_weights_are_not_negative() -> None:
    model = bf.bayesify(nn.Linear(3, 1), bf.Point(), bf.likelihood("normal", std=1.0))
    for bad in (-1.0, float("nan")):
        weight = torch.ones(40).index_fill(0, torch.tensor([3]), bad)
        with pytest.raises(ValueError, match=f"sample_weight holds {bad:g}: weights must be 0 or larger"):
            model.loss(X, SLOPE, sample_weight=weight)
