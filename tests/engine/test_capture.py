"""Steps that are recorded once and replayed. Where there is no GPU a recording is the call itself, made again."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.data import Loader, Split
from bayesify.engine.capture import CapturedGradients
from bayesify.engine.setup import compile_backend
from bayesify.objectives import Loss

NUM, BATCH = 80, 32  # the last batch of an epoch has 16
RECORDED = True  # do runs record their steps?


class Again:
    """What a CUDA graph does, by calling the function again: results land where the recording left them."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters, self.recordings, self.replays = parameters, 0, 0

    def aside(self) -> Any:
        return nullcontext()

    def __call__(self, function: Callable[[], Loss]) -> tuple[Callable[[], None], Loss]:
        self.recordings += 1
        loss = function()
        places = [p.grad for p in self.parameters]

        def replay() -> None:
            self.replays += 1
            for place, new in zip(loss, function(), strict=True):
                place.copy_(new)
            for place, p in zip(places, self.parameters, strict=True):
                if place is not None and p.grad is not None:
                    place.copy_(p.grad)

        return replay, loss


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[CapturedGradients]]:
    """Every run here records its steps: the recorders, in their order."""
    found: list[CapturedGradients] = []

    def make(model: nn.Module, device: torch.device, backend: str) -> CapturedGradients:
        captured = CapturedGradients(model, device, "eager" if backend == "eager" else "aot_eager")
        captured.record = Again([p for p in model.parameters() if p.requires_grad])
        found.append(captured)
        return captured

    compiled = partial(torch.compile, backend="aot_eager", dynamic=False)
    monkeypatch.setattr("bayesify.engine.loop.compile_model", lambda model, fabric: compiled(model))
    monkeypatch.setattr("bayesify.engine.loop.takes_graphs", lambda fabric: RECORDED)
    monkeypatch.setattr("bayesify.engine.loop.CapturedGradients", make)
    yield found
    torch._dynamo.reset()


def data() -> Split:
    draws = torch.Generator().manual_seed(0)
    x = torch.randn(NUM, 6, generator=draws)
    return Split(x, (x[:, 0] > 0).long())


def mlp(norm: Callable[[int], nn.Module] = nn.BatchNorm1d) -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), norm(8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 2))


@contextmanager
def not_recorded() -> Iterator[None]:
    global RECORDED
    RECORDED = False
    try:
        yield
    finally:
        RECORDED = True
        torch._dynamo.reset()  # it counts the compilations of all runs, and stops at 8


def trained(
    net: Callable[[], nn.Module], method: bf.methods.Method | None = None, **options: Any
) -> tuple[bf.BayesianModule, bf.History]:
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    model = bf.bayesify(net(), method or bf.MonteCarloVI(), num_data=NUM)
    settings: dict[str, Any] = {"epochs": 3, "lr": 1e-2, "schedule": "cosine", "kl_warmup": 1.0, "seed": 3}
    settings |= {"progress": False, "accelerator": "cpu", "compile": True, **options}
    loader = Loader(data(), BATCH, shuffle=True, seed=1)
    return model, bf.fit(model, loader, **settings)


def assert_same(a: nn.Module, b: nn.Module) -> None:
    for (name, mine), theirs in zip(a.state_dict().items(), b.state_dict().values(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.parametrize(
    "method",
    [
        bf.MonteCarloVI(),
        bf.MCDropout(0.2),
        bf.EnsemblePatching(),
        bf.DensityPropagation(),
        bf.DeepEnsemble(bf.Point(), 2),
    ],
    ids=lambda m: type(m).__name__,
)
def test_a_replayed_run_is_the_run_itself(made: list[CapturedGradients], method: bf.methods.Method) -> None:
    with not_recorded():
        plain, _ = trained(mlp, method, ema=0.9, clip_norm=1.0)
    model, history = trained(mlp, method, ema=0.9, clip_norm=1.0)
    assert_same(model, plain)
    assert made[0].refusal is None
    assert (
        made[0].record.recordings == 2 and made[0].record.replays == 9
    )  # two kinds of batch, three steps an epoch
    assert not any("CUDA graph" in note for note in history.notes)


def test_a_step_with_a_sweep_is_recorded_as_it_is_where_nobody_asked_to_compile(
    made: list[CapturedGradients], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, _ = trained(mlp, bf.DensityPropagation(), compile=False)
    monkeypatch.setattr("bayesify.engine.loop.compile_decision", lambda *_: (True, "compile: on"))
    model, history = trained(mlp, bf.DensityPropagation(), compile="auto")
    assert_same(model, plain)
    assert made[0].backend == "eager" and made[0].refusal is None
    assert made[0].record.recordings == 2 and made[0].record.replays == 9
    assert not any("CUDA graph" in note for note in history.notes)


def test_what_is_compiled_in_full() -> None:
    def backend(compile: bool | str, method: bf.methods.Method) -> str:
        return compile_backend(compile, bf.bayesify(mlp(), method, num_data=NUM))

    assert backend("auto", bf.DensityPropagation()) == "eager"
    assert backend(True, bf.DensityPropagation()) == "inductor"
    assert backend("auto", bf.DensityPropagation(covariance="diagonal")) == "inductor"
    assert backend("auto", bf.MonteCarloVI()) == "inductor"


def test_a_replayed_chain_is_the_chain_itself(made: list[CapturedGradients]) -> None:
    net, method = partial(mlp, nn.LayerNorm), bf.ThermostatMCMC(num_kept=3)
    with not_recorded():
        plain, _ = trained(net, method)
    model, _ = trained(net, method)
    assert_same(model, plain)
    assert made[0].record.replays == 9


class Scaled(nn.Module):
    """A layer that is scaled at random, by a generator of the processor."""

    def __init__(self, draw: Callable[[], Any]) -> None:
        super().__init__()
        self.inner, self.draw = nn.Linear(8, 8), draw

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) * self.draw()


@torch.library.custom_op("bayesify_tests::host_uniform", mutates_args=())
def host_uniform() -> Tensor:
    """An operation that torch compiles without looking into it."""
    return torch.tensor(random.random())


@host_uniform.register_fake
def _() -> Tensor:
    return torch.empty(())


class Counted(nn.Module):
    """A layer whose factor is the number of calls."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = nn.Linear(8, 8), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return x + self.inner(x) / self.calls


class Looked(nn.Module):
    """A layer that decides by the values it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) if x.mean().item() > 0 else x - self.inner(x)


def around(inner: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(6, 8), inner(), nn.Linear(8, 2))


@pytest.mark.filterwarnings("ignore::UserWarning:torch")  # of what it cannot trace
@pytest.mark.parametrize(
    ("inner", "reason"),
    [
        (lambda: Scaled(lambda: random.random()), "whole|numbers from the processor"),
        (lambda: Scaled(lambda: host_uniform()), "numbers from the processor"),
        (lambda: Scaled(np.random.rand), "whole|numbers from the processor"),
        (Counted, "compiled anew"),
        (Looked, "whole"),
    ],
    ids=["random", "operator", "numpy", "counted", "looked"],
)
def test_what_a_replay_would_miss_is_not_recorded(
    made: list[CapturedGradients], inner: Callable[[], nn.Module], reason: str
) -> None:
    _, history = trained(around(inner), bf.Point())
    assert any("does not run as one CUDA graph" in note for note in history.notes)
    assert made[0].refusal is not None
    assert re.search(reason, made[0].refusal)
    assert made[0].record.replays == 0


def rate(model: bf.BayesianModule) -> None:
    model.net[3].p = 0.6


def frozen(model: bf.BayesianModule) -> None:
    model.net[0].weight.requires_grad_(False)


@pytest.mark.parametrize("changes", [(rate,), (frozen,), (rate, frozen)], ids=["rate", "frozen", "both"])
def test_changes_between_epochs_are_seen(
    made: list[CapturedGradients], changes: tuple[Callable[[bf.BayesianModule], None], ...]
) -> None:
    """A dropout rate, a frozen layer: a replay of what was recorded before would miss them."""

    def change(model: bf.BayesianModule, epoch: int) -> None:
        if epoch <= len(changes):
            changes[epoch - 1](model)

    with not_recorded():
        plain, _ = trained(mlp, bf.Point(), on_epoch=change)
    model, _ = trained(mlp, bf.Point(), on_epoch=change)
    assert_same(model, plain)
    assert made[0].record.recordings > 2


def test_batches_of_many_sizes(made: list[CapturedGradients], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayesify.engine.capture.MAX_GRAPHS", 2)
    split = data()
    batches = [(split.inputs[:n], split.targets[:n]) for n in (10, 12, 14, 10)]

    def model() -> bf.BayesianModule:
        torch.manual_seed(0)
        net = bf.bayesify(mlp(), bf.MCDropout(0.2), num_data=NUM)
        bf.fit(net, batches, epochs=1, compile=True, progress=False, seed=0, accelerator="cpu")
        return net

    with not_recorded():
        plain = model()
    assert_same(model(), plain)
    assert made[0].record.recordings == 2 and made[0].record.replays == 3


class OfSets(nn.Module):
    """Takes more than a tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 2)

    def forward(self, x: Tensor, names: frozenset[str]) -> Tensor:
        return self.inner(x) * len(names)


def test_batches_of_other_things_are_not_recorded(made: list[CapturedGradients]) -> None:
    split = data()
    model = bf.bayesify(OfSets(), bf.Point(), num_data=NUM)
    batches = [((split.inputs, frozenset("ab")), split.targets)]
    history = bf.fit(model, batches, epochs=2, compile=True, progress=False, accelerator="cpu")
    assert made[0].refusal == "its batches hold frozenset, not tensors and numbers alone"
    assert history[1]["loss"] < history[0]["loss"]


def test_a_resumed_run_goes_on_bit_for_bit(made: list[CapturedGradients], tmp_path: Any) -> None:
    whole, _ = trained(mlp, folder=tmp_path / "whole", schedule=None)
    trained(mlp, folder=tmp_path / "parts", epochs=2, schedule=None)
    parts, history = trained(mlp, folder=tmp_path / "parts", schedule=None)
    assert any("resumed at" in note for note in history.notes)
    for mine, theirs in zip(parts.state_dict().values(), whole.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
@pytest.mark.inductor
@pytest.mark.filterwarnings("ignore:TensorFloat32")
@pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled")  # Inductor's choice for two classes
@pytest.mark.parametrize(
    "method",
    [bf.MonteCarloVI(), bf.DensityPropagation(), bf.ThermostatMCMC()],
    ids=lambda m: type(m).__name__,
)
def test_a_captured_run_on_a_gpu_is_the_compiled_run(
    method: bf.methods.Method, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit: the same kernels, the same random numbers."""
    models = []
    for most in (4, 0):
        monkeypatch.setattr("bayesify.engine.capture.MAX_GRAPHS", most)
        torch._dynamo.reset()  # it counts the compilations of all runs, and stops at 8
        model, history = trained(partial(mlp, nn.LayerNorm), method, accelerator="gpu")
        models.append(model)
        assert not any("CUDA graph" in note for note in history.notes), history.notes  # nothing was refused
    for mine, theirs in zip(*(m.state_dict().values() for m in models), strict=True):
        assert torch.equal(mine, theirs)
