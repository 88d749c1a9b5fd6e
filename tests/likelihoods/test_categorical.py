"""The categorical likelihood against torch.distributions."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributions import Categorical

import bayesify as bf

BATCH, CLASSES = 6, 4


def make(*extra: int, class_dim: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """(output with classes at `class_dim`, the same with classes last, targets)."""
    last = torch.randn(BATCH, *extra, CLASSES)
    return last.movedim(-1, class_dim), last, torch.randint(CLASSES, (BATCH, *extra))


def log_probs(last: Tensor, target: Tensor) -> Tensor:
    """Of every position."""
    return Categorical(logits=last).log_prob(target)


def per_example(values: Tensor) -> Tensor:
    return values.reshape(BATCH, -1).sum(1)


@pytest.mark.parametrize("class_dim", [1, -1])
@pytest.mark.parametrize("extra", [(), (5,), (3, 2)])
def test_log_prob_sums_over_the_positions_of_an_example(class_dim: int, extra: tuple[int, ...]) -> None:
    output, last, target = make(*extra, class_dim=class_dim)
    likelihood = bf.likelihood("categorical", class_dim=class_dim)
    expected = per_example(log_probs(last, target))
    torch.testing.assert_close(likelihood.log_prob(output, target), expected)
    torch.testing.assert_close(likelihood.nll(output, target), -expected.mean())


def test_ignored_positions_do_not_count() -> None:
    output, last, target = make(5)
    ignored = torch.rand(BATCH, 5) < 0.4
    expected = per_example(torch.where(ignored, 0.0, log_probs(last, target)))
    for index in (-100, 7):
        likelihood = bf.likelihood("categorical", ignore_index=index)
        nll = likelihood.nll(output, target.masked_fill(ignored, index))
        torch.testing.assert_close(nll, -expected.mean())


def test_class_weights_multiply_the_positions() -> None:
    output, last, target = make(5)
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0])
    expected = per_example(weight[target] * log_probs(last, target))
    likelihood = bf.likelihood("categorical", class_weight=weight.tolist())
    torch.testing.assert_close(likelihood.nll(output, target), -expected.mean())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_class_weights_take_the_networks_dtype(dtype: torch.dtype) -> None:
    """Equal to float64 up to the roundings of `dtype`: one in each of the 3 steps, on values up to 10."""
    output, last, target = make()
    weight = torch.tensor([0.5, 1.0, 2.0, 3.0])
    expected = -(weight[target] * log_probs(last.to(dtype).double(), target)).mean()
    value = bf.likelihood("categorical", class_weight=weight).nll(output.to(dtype), target)
    torch.testing.assert_close(value.double(), expected, rtol=0, atol=3 * 10 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("class_dim", [1, -1])
def test_soft_labels_give_the_cross_entropy(class_dim: int) -> None:
    output, last, _ = make(5, class_dim=class_dim)
    soft = torch.rand(BATCH, 5, CLASSES).softmax(-1)
    expected = per_example((soft * last.log_softmax(-1)).sum(-1))
    likelihood = bf.likelihood("categorical", class_dim=class_dim)
    torch.testing.assert_close(likelihood.nll(output, soft.movedim(-1, class_dim)), -expected.mean())


def test_one_hot_soft_labels_equal_hard_ones() -> None:
    output, _, target = make()
    likelihood = bf.likelihood("categorical", class_weight=[0.5, 1.0, 2.0, 3.0])
    one_hot = torch.nn.functional.one_hot(target, CLASSES).float()
    torch.testing.assert_close(likelihood.nll(output, one_hot), likelihood.nll(output, target))


def test_sample_weights_multiply_the_examples() -> None:
    output, last, target = make()
    weight = torch.rand(BATCH)
    expected = -(weight * log_probs(last, target)).mean()
    value = bf.likelihood("categorical").nll(output, target, sample_weight=weight)
    torch.testing.assert_close(value, expected)


@pytest.mark.parametrize("class_dim", [1, -1])
def test_a_draw_is_summarized_by_probabilities_and_their_entropy(class_dim: int) -> None:
    output, last, _ = make(5, class_dim=class_dim)
    probs, entropy = bf.likelihood("categorical", class_dim=class_dim).summarize(output)
    torch.testing.assert_close(probs, last.softmax(-1).movedim(-1, class_dim))
    torch.testing.assert_close(entropy, Categorical(logits=last).entropy())


def test_a_masked_class_has_probability_zero_and_adds_no_entropy() -> None:
    probs, entropy = bf.likelihood("categorical").summarize(torch.tensor([[0.0, 0.0, -math.inf]]))
    torch.testing.assert_close(probs, torch.tensor([[0.5, 0.5, 0.0]]))
    torch.testing.assert_close(entropy, torch.tensor([math.log(2)]))


def test_half_precision_outputs_are_summarized_in_float32() -> None:
    probs, entropy = bf.likelihood("categorical").summarize(torch.randn(3, 4).half())
    assert probs.dtype == entropy.dtype == torch.float32


def test_its_options_make_it_again() -> None:
    likelihood = bf.likelihood(
        "categorical", class_dim=-1, ignore_index=3, class_weight=[1.0, 2.0], label_smoothing=0.1
    )
    again = bf.likelihood("categorical", **likelihood.options)
    assert (
        again.options
        == likelihood.options
        == {"class_dim": -1, "ignore_index": 3, "class_weight": [1.0, 2.0], "label_smoothing": 0.1}
    )


def check(output: Tensor, target: Tensor, **options: object) -> Tensor:
    return bf.likelihood("categorical", **options).check(output, target, values=True)


def test_one_logit_per_example_is_refused() -> None:
    with pytest.raises(ValueError, match=r"output has shape \(3,\).*likelihood='bernoulli'"):
        check(torch.zeros(3), torch.zeros(3).long())


@pytest.mark.parametrize("target", [torch.zeros(3), torch.zeros(3, dtype=torch.bool)])
def test_targets_that_are_not_indices_are_refused(target: Tensor) -> None:
    with pytest.raises(TypeError, match=rf"dtype {target.dtype}; .*class indices .*\(3, 4\)"):
        check(torch.zeros(3, 4), target)


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"target has shape \(3, 1\); for an output \(3, 4\) it must be \(3,\)"
    ):
        check(torch.zeros(3, 4), torch.zeros(3, 1).long())


def test_a_wrong_class_dim_is_recognized() -> None:
    with pytest.raises(ValueError, match=r"it must be \(3, 4\): classes stand last.*class_dim=-1"):
        check(torch.zeros(3, 5, 4), torch.zeros(3, 5).long())


def test_integer_one_hot_targets_are_recognized() -> None:
    with pytest.raises(ValueError, match=r"it looks one-hot, so use target\.argmax\(1\)"):
        check(torch.zeros(3, 4), torch.zeros(3, 4).long())


@pytest.mark.parametrize("wrong", [-1, 4])
def test_classes_out_of_range_are_refused(wrong: int) -> None:
    with pytest.raises(
        ValueError, match=r"target holds classes .* has 4 outputs: classes must lie in 0\.\.3"
    ):
        check(torch.zeros(3, 4), torch.tensor([0, 1, wrong]))


def test_a_class_out_of_range_is_refused_in_every_integer_type() -> None:
    with pytest.raises(ValueError, match=r"target holds classes 0 to 156"):
        check(torch.zeros(3, 4), torch.tensor([0, 1, 156], dtype=torch.uint8))


def test_values_are_not_read_when_not_asked() -> None:
    target = torch.tensor([0, 1, 9])
    assert torch.equal(bf.likelihood("categorical").check(torch.zeros(3, 4), target, values=False), target)


@pytest.mark.parametrize("soft", [torch.full((3, 4), -0.25), torch.full((3, 4), 1.0)])
def test_soft_labels_must_be_probabilities(soft: Tensor) -> None:
    with pytest.raises(ValueError, match="probabilities"):
        check(torch.zeros(3, 4), soft)


def test_small_integer_types_are_accepted() -> None:
    target = check(torch.zeros(3, 4), torch.tensor([0, 1, 3], dtype=torch.uint8))
    assert target.dtype == torch.long
    assert target.tolist() == [0, 1, 3]


@pytest.mark.parametrize("class_dim", [1, -1])
def test_label_smoothing_is_that_of_torch(class_dim: int) -> None:
    """In the loss, with class weights and ignored positions; predictions are scored without."""
    torch.manual_seed(0)
    output, weight = torch.randn(5, 3, 4), [1.0, 2.0, 0.5, 3.0]
    target = torch.randint(4, (5, 3))
    target[0, 1] = -100
    given = output if class_dim == -1 else output.movedim(-1, 1)
    smooth = bf.likelihood("categorical", class_dim=class_dim, class_weight=weight, label_smoothing=0.2)
    sharp = bf.likelihood("categorical", class_dim=class_dim, class_weight=weight)
    options = {"weight": torch.tensor(weight), "reduction": "sum"}
    wanted = F.cross_entropy(output.movedim(-1, 1), target, label_smoothing=0.2, **options)
    torch.testing.assert_close(smooth.nll(given, target), wanted / 5)
    assert torch.equal(smooth.log_prob(given, target), sharp.log_prob(given, target))


def test_label_smoothing_of_soft_labels() -> None:
    output, soft = torch.randn(5, 4), torch.rand(5, 4).softmax(1)
    smooth = bf.likelihood("categorical", label_smoothing=0.2)
    wanted = F.cross_entropy(output, soft, label_smoothing=0.2)
    torch.testing.assert_close(smooth.nll(output, soft), wanted)


@pytest.mark.parametrize("method", [bf.DensityPropagation(), bf.MonteCarloVI(num_likelihood_draws=3)])
def test_label_smoothing_with_other_data_terms(method: Any) -> None:
    """It raises the loss of a sure and right network."""
    losses = []
    for share in (0.0, 0.3):
        torch.manual_seed(0)
        net = nn.Linear(3, 2)
        with torch.no_grad():
            net.weight.copy_(torch.tensor([[20.0, 0, 0], [0, 20, 0]]))
        law = bf.likelihood("categorical", label_smoothing=share)
        model = bf.bayesify(net, method, law, num_data=10)
        losses.append(model.loss(torch.eye(3)[:2], torch.tensor([0, 1])).nll.item())
    assert losses[1] > losses[0] + 1


def test_classes_are_not_the_batch() -> None:
    with pytest.raises(ValueError, match="class_dim=0 must be a whole number of at least 1 and at most 8 or"):
        bf.likelihood("categorical", class_dim=0)
    for class_dim in (-2, -5, 2):
        likelihood = bf.likelihood("categorical", class_dim=class_dim)
        with pytest.raises(ValueError, match=f"class_dim={class_dim} needs"):
            likelihood.nll(torch.zeros(4, 3), torch.zeros(3, dtype=torch.long))
