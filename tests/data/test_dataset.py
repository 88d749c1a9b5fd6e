"""DataSet: what it refuses, and the validation split."""

import pytest
import torch

from bayesify.data import DataSet, Normalisation, Split


def classes(num: int = 20, num_classes: int = 2) -> Split:
    return Split(torch.arange(3.0 * num).view(num, 3), torch.arange(num) % num_classes)


def make(train: Split, test: Split | None = None, class_names: str = "ab", **options: object) -> DataSet:
    return DataSet.classification("mine", train, classes() if test is None else test, class_names, **options)


def test_fields_follow_from_the_parts() -> None:
    ds = make(classes())
    assert (ds.task, ds.num_outputs, ds.input_shape, ds.class_names) == (
        "classification",
        2,
        (3,),
        ("a", "b"),
    )
    assert (ds.val, ds.augment) == (None, "none")
    y = torch.arange(20.0).view(10, 2)
    ds = DataSet.regression("r", Split(y, y), Split(y, y))
    assert (ds.task, ds.num_outputs, ds.class_names) == ("regression", 2, None)


def test_prints_sizes_and_not_numbers() -> None:
    assert "train=Split(20 × (3,) torch.float32)" in repr(make(classes()))


def test_validation_is_split_off_reproducibly() -> None:
    ds = make(classes(40))
    first, again, other = (ds.with_validation(0.25, seed=s) for s in (3, 3, 4))
    assert (len(first.train), len(first.val)) == (30, 10)
    assert torch.equal(first.val.inputs, again.val.inputs)
    assert not torch.equal(first.val.inputs, other.val.inputs)
    together = torch.cat([first.train.inputs, first.val.inputs])
    assert sorted(together[:, 0].tolist()) == ds.train.inputs[:, 0].tolist()
    assert torch.equal(first.normalisation.mean, ds.normalisation.mean)


def test_the_validation_split_never_changes() -> None:
    val = make(classes(40)).with_validation(0.1, seed=0).val
    assert (val.inputs[:, 0] / 3).tolist() == [4, 20, 22, 25]  # RandomState(0).permutation(40)[:4], sorted


@pytest.mark.parametrize("fraction", [0.0, 1.0, 0.001, -0.1, 2.0])
def test_validation_needs_examples_on_both_sides(fraction: float) -> None:
    with pytest.raises(ValueError, match=rf"fraction={fraction}.*both parts need at least one"):
        make(classes()).with_validation(fraction)


def test_validation_cannot_be_split_off_twice() -> None:
    with pytest.raises(ValueError, match="'mine' already has a validation part of 2 examples"):
        make(classes()).with_validation(0.1).with_validation(0.1)


def test_refuses_counts_that_differ() -> None:
    with pytest.raises(ValueError, match="'mine', train: 20 inputs but 19 targets"):
        make(Split(classes().inputs, classes().targets[1:]))


@pytest.mark.parametrize("bad", [-1, 2])
def test_refuses_labels_out_of_range(bad: int) -> None:
    split = classes()
    split.targets[5] = bad
    with pytest.raises(
        ValueError, match=rf"'mine', train targets: label {bad} of example 5 is outside 0\.\.1"
    ):
        make(split)


def test_refuses_labels_that_are_not_integers() -> None:
    with pytest.raises(ValueError, match=r"train targets: labels are torch.float32 of shape \(20,\)"):
        make(Split(classes().inputs, classes().targets.float()))


def test_refuses_a_single_class() -> None:
    with pytest.raises(ValueError, match=r"'mine', train targets: every label is 1.*needs two classes"):
        make(Split(classes().inputs, torch.ones(20, dtype=torch.int64)))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_refuses_nan_inputs(bad: float) -> None:
    split = classes()
    split.inputs[4, 2] = bad
    with pytest.raises(ValueError, match=rf"'mine', test inputs: value {bad} at index \(4, 2\) \(1 values"):
        make(classes(), split)


def test_refuses_nan_targets() -> None:
    y = torch.zeros(4, 1)
    bad = torch.tensor([[0.0], [float("nan")], [0.0], [0.0]])
    with pytest.raises(ValueError, match=r"'r', train targets: value nan at index \(1, 0\)"):
        DataSet.regression("r", Split(y, bad), Split(y, y))


def test_refuses_regression_targets_without_a_column() -> None:
    y = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"'r', train targets: shape \(4,\) where \(any, any\)"):
        DataSet.regression("r", Split(y, y[:, 0]), Split(y, y))


def test_refuses_inputs_of_another_shape() -> None:
    with pytest.raises(ValueError, match=r"train inputs: shape \(2,\) where \(3\) is expected"):
        make(Split(classes().inputs[:, :2], classes().targets), normalisation=Normalisation.identity())


def test_refuses_an_empty_test_part_and_an_unknown_augmentation() -> None:
    with pytest.raises(ValueError, match="'mine', test: holds no examples"):
        make(classes(), classes().none())
    with pytest.raises(ValueError, match=r"augment='cropflip' does not exist.*'crop_flip'"):
        make(classes(), augment="cropflip")


def test_a_part_that_was_not_loaded_has_no_examples_and_the_statistics_come_from_test() -> None:
    ds = make(classes().none())
    assert len(ds.train) == 0
    assert torch.equal(ds.normalisation.mean, Normalisation.of(ds.test.inputs).mean)
