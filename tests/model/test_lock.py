"""A model in a forked process: its lock is free there, and its weights are its own."""

import os
import select
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.model import lock

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
X = torch.randn(4, 3, generator=torch.Generator().manual_seed(0))


class Slow(nn.Module):
    """A network that takes `pause` seconds."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.pause = nn.Linear(3, 2), 0.0
        self.entered = threading.Event()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.entered.set()
        time.sleep(self.pause)
        return self.layer(x)


@pytest.fixture
def model() -> bf.BayesianModule:
    return bf.bayesify(Slow(), bf.MonteCarloVI(init_std=0.5), num_data=10).train()


@contextmanager
def predicting(model: bf.BayesianModule, pause: float, num_draws: int) -> Iterator[None]:
    """Inside, another thread is in the middle of a prediction, with a draw in place."""
    model.net.pause = pause  # type: ignore[assignment]
    model.net.entered.clear()  # type: ignore[union-attr, operator]
    thread = threading.Thread(target=lambda: model.predict(X, num_draws, batched=False))
    thread.start()
    model.net.entered.wait(10)  # type: ignore[union-attr, operator]
    yield
    thread.join()
    model.net.pause = 0.0  # type: ignore[assignment]


def in_child(work: Callable[[], str], seconds: float = 20) -> str:
    """What `work` returns in a forked process; "hangs" where it does not within so many seconds."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, work().encode())
        except BaseException as error:
            os.write(writing, f"{type(error).__name__}: {error}".encode())
        finally:
            os._exit(0)
    os.close(writing)
    ready = select.select([reading], [], [], seconds)[0]
    said = os.read(reading, 10_000).decode() if ready else "hangs"
    os.close(reading)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return said


def state(model: bf.BayesianModule) -> str:
    """A prediction, the weights, and whether the model trains."""
    model.net.pause = 0.0  # type: ignore[assignment]
    probs = model.predict(X, 3, generator=torch.Generator().manual_seed(1)).probs
    return f"{probs.tolist()} {[w.tolist() for w in model.net.parameters()]} {model.training, model.net.training}"


@pytest.mark.parametrize("repeat", range(3))
def test_a_fork_while_another_thread_predicts(model: bf.BayesianModule, repeat: int) -> None:
    expected = state(model)
    with predicting(model, pause=0.05, num_draws=3):
        assert in_child(lambda: state(model)) == expected
    assert state(model) == expected


def test_a_model_that_is_in_use_for_long_is_refused_in_the_child(
    model: bf.BayesianModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another model is as it was, and the parent's goes on."""
    monkeypatch.setattr(lock, "WAIT", 0.1)
    other = bf.bayesify(Slow(), bf.Point(), num_data=10).train()
    expected = state(other), state(model)
    with predicting(model, pause=1.0, num_draws=1):
        start = time.monotonic()
        said = in_child(lambda: state(model))
        assert said.startswith(
            "RuntimeError: another thread was using this model when the process was forked"
        )
        assert in_child(lambda: state(other)) == expected[0]
        assert time.monotonic() - start < 1
    assert (state(other), state(model)) == expected


def test_a_fork_inside_of_a_call_goes_on_with_its_weights(model: bf.BayesianModule) -> None:
    said: list[str] = []

    def hook(*_: object) -> None:
        if not said:
            said.append("")
            inside = model.net.layer.weight.tolist()  # type: ignore[union-attr]
            said[0] = in_child(lambda: str(model.net.layer.weight.tolist() == inside))  # type: ignore[union-attr]

    handle = model.net.register_forward_pre_hook(hook)
    model.predict(X, 2, batched=False)
    handle.remove()
    assert said == ["True"]
    state(model)


def test_threads_that_fork_at_once_leave_the_lock_free(model: bf.BayesianModule) -> None:
    expected, found = state(model), []
    threads = [
        threading.Thread(target=lambda: found.append(in_child(lambda: state(model)))) for _ in range(4)
    ]
    [t.start() for t in threads], [t.join() for t in threads]
    assert found == [expected] * 4
    assert state(model) == expected
