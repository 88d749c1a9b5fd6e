"""Draws arrive as they were stored, in the dtypes of the network."""

from collections.abc import Iterator

import pytest
import torch

from bayesify.posteriors.chain.prefetch import Upload, prefetched

SHAPES = {"a": (3, 5), "b": (), "c": (700,), "d": (2, 3, 3, 1), "e": (0, 4)}
DTYPES = {"a": torch.float32, "b": torch.float64, "c": torch.bfloat16, "d": torch.float32, "e": torch.float32}
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="GPU"))]


@pytest.mark.parametrize("stored", [None, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", DEVICES)
def test_draws_arrive_one_by_one_and_together(device: str, stored: torch.dtype | None) -> None:
    generator = torch.Generator().manual_seed(0)
    like = {name: torch.zeros(shape, dtype=DTYPES[name], device=device) for name, shape in SHAPES.items()}
    like["d"] = like["d"].to(memory_format=torch.channels_last)
    draws = [
        {name: torch.randn(w.shape, generator=generator).to(stored or w.dtype) for name, w in like.items()}
        for _ in range(7)
    ]
    upload = Upload(like)
    chunks = [draws[:1], draws[1:2], draws[2:6], draws[6:]]
    started = list(prefetched(lambda chunk: upload.start(5, chunk), chunks))  # room for more than come
    assert [n for n, _ in started] == [1, 1, 4, 1]
    arrived = [arrive() for _, arrive in started]
    for name, w in like.items():
        together = torch.cat([weights[name] for weights in arrived])
        expected = torch.stack([draw[name].to(w.dtype) for draw in draws])
        assert together.dtype == w.dtype and together.device == w.device
        assert torch.equal(together.cpu(), expected)
        assert all(weights[name].is_contiguous() for weights in arrived)


def test_a_row_holds_every_tensor_at_a_place_of_its_own() -> None:
    like = {name: torch.zeros(shape, dtype=DTYPES[name]) for name, shape in SHAPES.items()}
    upload = Upload(like)
    rows = upload.rows(2, torch.device("cpu"))
    views = upload.views(rows)
    for number, view in enumerate(views.values()):
        view[0].fill_(number), view[1].fill_(-number)
    for number, (name, view) in enumerate(views.items()):
        assert view.shape == (2, *SHAPES[name]) and view.dtype == DTYPES[name]
        assert view[0].is_contiguous() and (view[0] == number).all() and (view[1] == -number).all()


def test_draws_that_arrived_have_memory_of_their_own() -> None:
    stored = {"w": torch.ones(4)}
    upload = Upload(stored)
    first, second = (upload.start(1, [stored])[1]() for _ in range(2))
    first["w"].zero_()
    assert stored["w"].tolist() == second["w"][0].tolist() == [1.0] * 4


def test_ahead_is_one_item_ahead_and_passes_errors_on() -> None:
    taken = []

    def items() -> Iterator[int]:
        for item in range(4):
            taken.append(item)
            yield item

    results = prefetched(lambda item: 1 / (2 - item), items())
    assert next(results) == 0.5 and taken == [0, 1]
    assert next(results) == 1.0 and taken == [0, 1, 2]
    with pytest.raises(ZeroDivisionError):
        next(results)
    assert list(prefetched(str, [])) == []
