"""The draws of a chain, in memory or in a folder."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Generator, Tensor

from bayesify.posteriors.chain.draw_files import DrawFolder, read_draw
from bayesify.posteriors.chain.draw_store import NONE_YET, Kept, Place, Weights
from bayesify.posteriors.chain.prefetch import Arrival, Ferry, ahead

MEMORY = 2**28  # bytes of draws that stay in memory beside their files: small networks need not read them


class StoredDraws(Kept):
    """Draws by their place, in the order they were taken.

    Without a folder all are in memory. With one each has a file, and memory holds no more than `MEMORY` bytes
    of them. A file that turns out damaged is named in a warning and left out.
    """

    def __init__(self, like: Mapping[str, Tensor], dtype: torch.dtype | None = None) -> None:
        self.like = {name: (w.shape, w.dtype) for name, w in like.items()}
        self.dtype = dtype
        self.folder: DrawFolder | None = None
        self.places: list[Place] = []
        self.files: dict[Place, Path] = {}
        self.memory: dict[Place, Weights] = {}

    def __len__(self) -> int:
        return len(self.places)

    def add(self, place: Place, weights: Mapping[str, Tensor]) -> None:
        draw = {name: w.detach().to("cpu", self.dtype, copy=True) for name, w in weights.items()}
        if self.folder is not None:
            if not self.folder.write(place, draw):
                return
            self.files[place] = self.folder.file(place)
        if place not in self.places:
            self.places.append(place)
        held = sum(map(_size, self.memory.values()))
        if self.folder is None or held + _size(draw) <= MEMORY:
            self.memory[place] = draw
        self._write_index()

    def draw(self, n: int, generator: Generator | None) -> Weights:
        """Drawn with replacement."""
        while self.places:
            device = None if generator is None else generator.device
            chosen = torch.randint(len(self), (n,), generator=generator, device=device).tolist()
            draws = self._read([self.places[i] for i in chosen])
            if len(draws) == n:
                return self._stack(draws)
        raise RuntimeError(NONE_YET)

    def stream(
        self, num_draws: int, chunk: int, generator: Generator | None, like: Mapping[str, Tensor]
    ) -> Iterator[tuple[int, Weights]]:
        """Every stored draw once, or `num_draws` of them evenly spread over the chain."""
        places = spread(self.places, num_draws)
        ferry = Ferry(like)

        def load(chosen: list[Place]) -> tuple[int, Arrival]:
            draws = self._read(chosen)
            return len(draws), ferry.bring(draws)

        chunks = [places[start : start + chunk] for start in range(0, len(places), chunk)]
        at_hand = ferry.device.type == "cpu" and all(place in self.memory for place in places)
        for n, arrive in map(load, chunks) if at_hand else ahead(load, chunks):
            if n:
                yield n, arrive()

    def mean(self) -> Weights:
        total: Weights = {}
        for count, (_, draw) in enumerate(self.each(), 1):
            for name, w in draw.items():
                total[name] = total[name].lerp_(w.double(), 1 / count) if name in total else w.double()
        if not total:
            raise RuntimeError(NONE_YET)
        return total

    def variance(self) -> Weights:
        mean = self.mean()
        total = {name: torch.zeros_like(m) for name, m in mean.items()}
        for _, draw in self.each():
            for name, w in draw.items():
                total[name] += (w - mean[name]).square() / len(self)
        return total

    def move_to(self, folder: Path) -> None:
        if self.folder is not None and self.folder.path == folder:
            return
        draws = {place: self._one(place) for place in list(self.places)}
        self.folder = DrawFolder(folder)
        for place, draw in draws.items():
            if draw is not None and self.folder.write(place, draw):
                self.files[place] = self.folder.file(place)
        if draws:
            self._write_index()

    def adopt(self, folder: Path) -> int:
        """Add the draws of another run's folder as further chains; returns how many came."""
        source = DrawFolder(folder)
        index = source.read_index()
        mine = {name: list(shape) for name, (shape, _) in self.like.items()}
        if index["shapes"] != mine:
            names = [n for n in {**mine, **index["shapes"]} if index["shapes"].get(n) != mine.get(n)]
            raise ValueError(
                f"{folder} holds draws of another network: they differ in {', '.join(names[:5])}"
            )
        here = {path.resolve() for path in self.files.values()}
        if any(source.file(Place(*place)).resolve() in here for place in index["draws"]):
            raise ValueError(f"the draws in {folder} are in this chain already: add every folder once")
        first = self.next_chain()
        chains = sorted({chain for chain, _ in index["draws"]})
        for chain, step in index["draws"]:
            place = Place(first + chains.index(chain), step)
            self.places.append(place)
            self.files[place] = source.file(Place(chain, step))
        return len(index["draws"])

    def next_chain(self) -> int:
        """The first number that no chain has."""
        return max((place.chain for place in self.places), default=-1) + 1

    def tensors(self, whole: bool) -> dict[str, Tensor]:
        places = torch.tensor(self.places, dtype=torch.int64).reshape(-1, 2)
        if self.folder is not None and not whole:
            return {"places": places}
        stacked: Weights = {}
        count = 0
        for _, draw in self.each():  # one at a time: memory holds the result and a single draw
            for name, w in draw.items():
                if name not in stacked:
                    stacked[name] = w.new_empty((len(self.places), *w.shape))
                wider = torch.promote_types(stacked[name].dtype, w.dtype)  # of a folder added later
                stacked[name] = stacked[name].to(wider)
                stacked[name][count] = w
            count += 1
        if not stacked:
            stacked = {
                name: torch.empty((0, *shape), dtype=dtype) for name, (shape, dtype) in self.like.items()
            }
        places = torch.tensor(self.places, dtype=torch.int64).reshape(-1, 2)  # damaged ones are gone
        return {"places": places, **{f"draws.{name}": stacked[name][:count] for name in self.like}}

    def take(self, tensors: Mapping[str, Tensor]) -> None:
        """With draws: hold them in memory. Without: go back to when only these places had been taken."""
        places = [Place(*place) for place in tensors["places"].tolist()]
        draws = {k.removeprefix("draws."): w.cpu() for k, w in tensors.items() if k.startswith("draws.")}
        if draws:
            self.folder, self.files, self.places = None, {}, places
            self.memory = {p: {name: w[i].clone() for name, w in draws.items()} for i, p in enumerate(places)}
            return
        self.memory = {place: draw for place, draw in self.memory.items() if place in places}
        if self.folder is not None:
            files = {place: self.folder.file(place) for place in places if place not in self.files}
            self.files |= {place: path for place, path in files.items() if path.is_file()}
        self.places = [place for place in places if place in self.memory or place in self.files]
        for place in places:
            if place not in self.places:
                warnings.warn(f"the file of draw {place.step} is missing: this draw is left out")

    def _one(self, place: Place) -> Weights | None:
        if place in self.memory:
            return self.memory[place]
        draw = read_draw(self.files[place], {name: shape for name, (shape, _) in self.like.items()})
        if draw is None and place in self.places:
            self.places.remove(place)
        return draw

    def _read(self, places: list[Place]) -> list[Weights]:
        """These draws, without those that turn out damaged."""
        return [draw for place in places if (draw := self._one(place)) is not None]

    def each(self) -> Iterator[tuple[Place, Weights]]:
        """Every draw that is not damaged, with its place."""
        for place in list(self.places):
            draw = self._one(place)
            if draw is not None:
                yield place, draw

    def _stack(self, draws: list[Weights]) -> Weights:
        return {name: torch.stack([draw[name] for draw in draws]) for name in self.like}

    def _write_index(self) -> None:
        if self.folder is not None:
            mine = [place for place in self.places if self.files.get(place) == self.folder.file(place)]
            self.folder.write_index(mine, {name: tuple(shape) for name, (shape, _) in self.like.items()})


def spread(places: list[Place], count: int) -> list[Place]:
    """`count` of the places, evenly spread; all of them where there are not more."""
    if count >= len(places):
        return list(places)
    return [places[(2 * i + 1) * len(places) // (2 * count)] for i in range(count)]


def _size(draw: Weights) -> int:
    return sum(w.numel() * w.element_size() for w in draw.values())
