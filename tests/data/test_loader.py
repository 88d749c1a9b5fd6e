"""The loader: order and augmentation as a pure function of (seed, epoch, batch), alone and over ranks."""

import pytest
import torch
from torch import Tensor

from bayesify.data import Loader, Normalisation, Split


def photos(num: int = 23) -> Split:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (num, 3, 8, 8), dtype=torch.uint8, generator=generator)
    return Split(images, torch.arange(num))


def make(split: Split | None = None, batch_size: int = 4, **options: object) -> Loader:
    options = {"shuffle": True, "seed": 5, "augment": "crop_flip", **options}
    return Loader(photos() if split is None else split, batch_size, **options)


def same(first: list[tuple[Tensor, Tensor]], second: list[tuple[Tensor, Tensor]]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a, c) and torch.equal(b, d) for (a, b), (c, d) in pairs)


def order(loader: Loader) -> list[int]:
    return [int(i) for _, y in loader for i in y]


def test_an_epoch_holds_every_example_once() -> None:
    loader = make()
    assert sorted(order(loader)) == list(range(23))
    assert [len(y) for _, y in loader] == [4, 4, 4, 4, 4, 3]
    assert (len(loader), loader.num_data) == (6, 23)


def test_drop_last() -> None:
    loader = make(drop_last=True)
    assert [len(y) for _, y in loader] == [4] * 5
    assert (len(loader), loader.num_data) == (5, 23)


def test_without_shuffle_the_order_is_the_splits() -> None:
    loader = make(shuffle=False)
    loader.set_epoch(3)
    assert order(loader) == list(range(23))


def test_epochs_differ_and_repeat() -> None:
    loader, other = make(), make()
    zero = list(loader)
    loader.set_epoch(1)
    one = list(loader)
    assert not same(zero, one)
    other.set_epoch(1)
    assert same(one, list(other))
    loader.set_epoch(0)
    assert same(zero, list(loader))


def test_seeds_differ() -> None:
    assert order(make(seed=1)) != order(make(seed=2))


def test_augmentation_changes_with_the_epoch_and_not_with_the_order() -> None:
    loader = make(shuffle=False)
    first = next(iter(loader))[0]
    loader.set_epoch(1)
    assert not torch.equal(first, next(iter(loader))[0])


@pytest.mark.parametrize("at", [0, 1, 5, 6])
def test_resumes_in_the_middle_of_an_epoch_bit_for_bit(at: int) -> None:
    whole = make()
    whole.set_epoch(7)
    resumed = make()
    resumed.set_epoch(7)
    resumed.start_at(at)
    assert same(list(whole)[at:], list(resumed))
    assert same(list(whole), list(resumed))  # the skip was for one iteration


@pytest.mark.parametrize("at", [-1, 7])
def test_start_at_outside_the_epoch(at: int) -> None:
    with pytest.raises(ValueError, match=rf"start_at\({at}\): the epoch has batches 0\.\.5"):
        make().start_at(at)


def test_two_iterations_at_once_do_not_disturb_each_other() -> None:
    loader = make()
    expected = list(loader)
    mixed = [a for a, _ in zip(loader, loader, strict=True)]
    assert same(expected, mixed)


def test_the_global_generator_is_untouched() -> None:
    before = torch.get_rng_state()
    list(make())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("world_size", [2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_the_batches_of_one_process(world_size: int, drop_last: bool) -> None:
    """The ranks' batches joined are the one-process batches, augmented alike; only the tail is padded."""
    batch_size = 4
    one = make(batch_size=batch_size * world_size, drop_last=drop_last)
    ranks = [
        make(batch_size=batch_size, drop_last=drop_last, rank=r, world_size=world_size)
        for r in range(world_size)
    ]
    assert {len(r) for r in ranks} == {len(one)}
    for loader in (one, *ranks):
        loader.set_epoch(2)
    wrapped = order(one)
    one.set_epoch(2)
    for (x, y), *shares in zip(one, *ranks, strict=True):
        assert len({len(b) for _, b in shares}) == 1
        xs, ys = (torch.cat(parts) for parts in zip(*shares, strict=True))
        assert torch.equal(xs[: len(x)], x)
        assert torch.equal(ys[: len(y)], y)
        assert ys[len(y) :].tolist() == wrapped[: len(ys) - len(y)]  # padding: the start of the permutation
        assert len(ys) - len(y) < world_size


def test_more_ranks_than_examples_wraps_around() -> None:
    split = photos(2)
    seen = [order(make(split, 1, rank=r, world_size=5)) for r in range(5)]
    assert [len(s) for s in seen] == [1] * 5
    assert {i for s in seen for i in s} == {0, 1}


def test_normalises_images() -> None:
    split = photos()
    n = Normalisation.of(split.inputs)
    x = torch.cat([x for x, _ in Loader(split, 4, normalise=n, dtype=torch.float64)])
    assert torch.allclose(x.mean((0, 2, 3)), torch.zeros(3).double(), atol=1e-12)
    assert torch.allclose(x.std((0, 2, 3), correction=0), torch.ones(3).double())


def test_without_normalisation_bytes_become_fractions() -> None:
    split = photos()
    x, _ = next(iter(Loader(split, 23)))
    assert torch.allclose(x, split.inputs / 255)


def test_standardises_regression_targets_in_at_least_float32() -> None:
    values = torch.arange(6.0, dtype=torch.float64).view(6, 1)
    split = Split(values, 100 + values)
    n = Normalisation.of(split.inputs, split.targets)
    x, y = next(iter(Loader(split, 6, normalise=n, dtype=torch.bfloat16)))
    assert (x.dtype, y.dtype) == (torch.bfloat16, torch.float32)
    assert torch.allclose(n.original_mean(y), split.targets.float(), rtol=1e-6)
    _, raw = next(iter(Loader(split, 6)))
    assert torch.equal(raw, split.targets.float())


def test_keeping_the_data_off_the_device_changes_nothing() -> None:
    assert same(list(make()), list(make(keep_on_device=False)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size=0 must be at least 1"),
        ({"rank": 2, "world_size": 2}, r"rank=2 must lie in 0\.\.1"),
        ({"rank": -1}, r"rank=-1 must lie in 0\.\.0"),
        ({"batch_size": 24, "drop_last": True}, "drop_last leaves no batch: 23 examples .* = 24"),
        ({"augment": "cutout"}, "augment='cutout' does not exist; choose from crop_flip, none"),
        ({"normalise": Normalisation.of(torch.zeros(2, 5))}, "normalise has 5 channels .* have 3"),
        ({"split": photos().none()}, "split holds no examples: this part of the data set was not loaded"),
        ({"split": Split(torch.zeros(4, 2), torch.zeros(4))}, r"augment='crop_flip' takes images.*\(4, 2\)"),
        ({"split": Split(torch.zeros(4), torch.zeros(4))}, r"shape \(4,\) must have a feature"),
    ],
)
def test_refuses(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**options)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    gpu, again, cpu = make(device="cuda"), make(device="cuda", keep_on_device=False), make()
    assert order(gpu) == order(cpu)
    assert next(iter(gpu))[0].is_cuda
    gpu.start_at(2)
    assert same(list(gpu), list(again)[2:])
    plain = [make(device=d, augment="none") for d in ("cpu", "cuda")]
    assert all(torch.allclose(a, b.cpu()) for (a, _), (b, _) in zip(*plain, strict=True))
