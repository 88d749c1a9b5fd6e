"""Spoiled files by the thousand: `make fuzz N=10000`, or without make, all of them in 500 seconds at most:

    PYTHONPATH=src python tests/fuzz/fuzz.py -n 10000 --jobs 16 --seconds 500

Every case is a door, a number, and nothing else, so that it can be had again: `--door model --case 1234` shows one.
"""

import argparse
import math
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any, NamedTuple

if __name__ == "__main__":  # before torch is imported; a CUDA context does not survive the fork into workers
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}

for room in (Path(__file__).parent, *Path(__file__).parents[1].glob("*/")):
    sys.path.append(str(room))

from doors import DOORS, Door, same  # noqa: E402
from mutators import blind  # noqa: E402

SECONDS, BYTES = 20, 2**30  # that one case may take beyond what the process has
GOOD = ("right", "named error", "fall-back with a warning", "other values")
BAD = ("raw error", "error without a file name", "silent change", "out of memory", "hang", "died")
MEMORY = re.compile(
    r"can't allocate|unable to allocate|MemoryError|not enough memory|bad_alloc", re.IGNORECASE
)


class Result(NamedTuple):
    """What came of one case."""

    case: int
    outcome: str
    done: str  # to which file
    found: str  # what was said


def spoil(door: Door, folder: Path, rng: random.Random) -> tuple[str, bool]:
    """Spoil one file of the sample, rarely remove it: what was done, and whether checksums fit what it says now."""
    pattern = rng.choice([*door.spoil])
    files = sorted(path for path in folder.glob(pattern) if path.is_file())
    path, sealed = rng.choice(files), door.spoil[pattern]
    if sealed and rng.random() < 0.6:
        return rng.choice(sealed)(path, rng), True
    if rng.random() < 0.03:
        path.unlink()
        return f"{path.name}: gone", False
    return blind(path, rng, files), False


def tried(door: Door, sample: Path, case: int, folder: Path) -> Result:
    """One case in this process."""
    shutil.copytree(sample, folder)
    sound = _sound(door, sample, case)
    rng = random.Random(case)
    done, sealed = spoil(door, folder, rng)
    names = {part for path in sample.rglob("*") for part in (path.name, path.stem)} | {folder.name}
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            value = door.read(folder, random.Random(case))
        except Exception as error:
            text = f"{type(error).__name__}: {error}"
            said = " ".join([text, *(str(each.message) for each in seen)])
            if isinstance(error, MemoryError) or MEMORY.search(text):
                return Result(case, "out of memory", done, text)
            ours = type(error).__module__.startswith("bayesify")
            if not ours and (not isinstance(error, door.expected) or isinstance(error, UnicodeDecodeError)):
                return Result(case, "raw error", done, text + _place(error))
            if ours or any(name in said for name in names):
                return Result(case, "named error", done, text)
            return Result(case, "error without a file name", done, text + _place(error))
    if same(value, sound):
        return Result(case, "right", done, "")
    for text in (str(each.message) for each in seen):
        if any(name in text for name in names):
            return Result(case, "fall-back with a warning", done, text)
    return Result(case, "silent change" if door.checked and not sealed else "other values", done, "")


_read: dict[tuple[Path, int], Any] = {}


def _sound(door: Door, sample: Path, case: int) -> Any:
    """What a sound sample gives, by the same way in; read from a copy."""
    key = sample, random.Random(case).randrange(door.ways)
    if key not in _read:
        with tempfile.TemporaryDirectory() as beside, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            copy = Path(shutil.copytree(sample, Path(beside) / "case"))
            _read[key] = door.read(copy, random.Random(case))
    return _read[key]


def _place(error: BaseException) -> str:
    """The line of ours that it came from."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "src/bayesify" in f.filename]
    return f" [{Path(frames[-1].filename).name}:{frames[-1].lineno}]" if frames else ""


# -- in processes of their own ----------------------------------------------------------------------------
def _work(door: Door, sample: Path, pipe: Any) -> None:
    """Answer cases until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, used + BYTES))
    while (case := pipe.recv()) is not None:
        with tempfile.TemporaryDirectory() as here:
            with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
                result = tried(door, sample, case, Path(here) / "case")
            pipe.send(result)


class Worker:
    """A process that tries the cases of a door; it is replaced when it hangs or dies."""

    def __init__(self, door: Door, sample: Path) -> None:
        self.door, self.sample = door, sample
        self.case: int | None = None  # that it is at
        self.begin()

    def begin(self) -> None:
        fork = multiprocessing.get_context("fork")
        self.pipe, theirs = fork.Pipe()
        self.process = fork.Process(target=_work, args=(self.door, self.sample, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, case: int) -> None:
        self.case, self.end_by = case, time.monotonic() + SECONDS
        self.pipe.send(case)

    def answer(self) -> Result:
        """After the pipe has something to say, or the time is up."""
        assert self.case is not None
        case, self.case = self.case, None
        try:
            if self.pipe.poll():
                return self.pipe.recv()
            outcome = "hang"
        except (EOFError, OSError):
            outcome = "died"
        self.end()
        self.begin()
        return Result(case, outcome, "", "")

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def fuzz(name: str, cases: range, jobs: int = 1, seconds: float = math.inf) -> list[Result]:
    """The cases of a door in processes of their own, so many at a time; those that were begun in this time."""
    with tempfile.TemporaryDirectory() as beside:
        sample = Path(beside) / "case"
        sample.mkdir()
        with redirect_stdout(StringIO()), redirect_stderr(StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            DOORS[name].make(sample)
        workers = [Worker(DOORS[name], sample) for _ in range(min(jobs, len(cases)))]
        try:
            return sorted(_results(workers, iter(cases), time.monotonic() + seconds))
        finally:
            for worker in workers:
                worker.end()


def _results(workers: list[Worker], cases: Iterator[int], until: float) -> Iterator[Result]:
    """As they come."""
    while True:
        for worker in workers:
            if worker.case is None and time.monotonic() < until and (case := next(cases, None)) is not None:
                worker.ask(case)
        busy = [worker for worker in workers if worker.case is not None]
        if not busy:
            return
        left = min(worker.end_by for worker in busy) - time.monotonic()
        ready = wait([worker.pipe for worker in busy], max(0.0, left))
        for worker in busy:
            if worker.pipe in ready or time.monotonic() > worker.end_by:
                yield worker.answer()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-n", type=int, default=1000, help="cases in all")
    parser.add_argument("--seed", type=int, default=0, help="number of the first case")
    parser.add_argument("--door", action="append", choices=[*DOORS], help="only this one (may be repeated)")
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time (all cores)")
    parser.add_argument("--seconds", type=float, default=math.inf, help="in all, the same for every door")
    parser.add_argument("--show", type=int, default=5, help="failures of a kind that are written out")
    options = parser.parse_args()
    doors = options.door or [*DOORS]
    total: Counter[str] = Counter()
    print(f"{'':24}" + "".join(f"{outcome[:12]:>14}" for outcome in (*GOOD, *BAD)))
    end = time.monotonic() + options.seconds
    for i, name in enumerate(doors):
        first = options.seed if options.case is None else options.case
        count = -(-options.n // len(doors)) if options.case is None else 1
        begun = time.monotonic()
        seconds = (end - begun) / (len(doors) - i)
        found = fuzz(name, range(first, first + count), options.jobs, seconds)
        counts = Counter(each.outcome for each in found)
        total += counts
        row = "".join(f"{counts[outcome]:14}" for outcome in (*GOOD, *BAD))
        print(f"{name:24}{row}   {time.monotonic() - begun:.0f} s", flush=True)
        kinds = defaultdict(list)
        for each in found:
            if each.outcome in BAD or options.case is not None:
                kinds[each.outcome, re.sub(r"\W.*\[", "[", each.found)].append(each)
        for (outcome, _), some in kinds.items():
            print(f"    {outcome}, {len(some)} times:")
            for each in some[: options.show]:
                print(f"        case {each.case}: {each.done!a}\n            {each.found[:300]!a}")
    print(f"{'all, ' + str(total.total()):24}" + "".join(f"{total[outcome]:14}" for outcome in (*GOOD, *BAD)))
    sys.exit(any(total[outcome] for outcome in BAD))


if __name__ == "__main__":
    main()
