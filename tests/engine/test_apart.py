"""Members of an ensemble train as each would by itself: by batches of its own, and gradients of its own size."""

from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from test_checkpoint import assert_same_run
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, Sampler, TensorDataset

import bayesify as bf
from bayesify.batches import PerMember
from bayesify.checks import NonFiniteLossError
from bayesify.data import Loader, Split
from bayesify.engine.apart import MemberGradients, apart
from bayesify.engine.loop import Loop

NUM, BATCH, MEMBERS = 88, 16, 3
X = torch.randn(NUM, 6, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()


def net(seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 2))


def ensemble(method: bf.methods.Method | None = None, **options: Any) -> bf.BayesianModule:
    return bf.bayesify(net(), bf.DeepEnsemble(method, MEMBERS), **options)


def own(**options: Any) -> Loader:
    return Loader(Split(X, Y), BATCH, shuffle=True, seed=3, **options)


def torchs(**options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(X, Y, torch.arange(NUM)), BATCH, **{"shuffle": True, **options})


def fit(model: bf.BayesianModule, loader: Any, **options: Any) -> bf.History:
    given: dict[str, Any] = {"epochs": 3, "seed": 0, "progress": False, "accelerator": "cpu", **options}
    return bf.fit(model, loader, **given)


SGD = {"optimizer": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-3}


@pytest.mark.parametrize(
    "options",
    [
        SGD | {"clip_norm": 0.3, "schedule": "onecycle"},
        {"recipe": "convolutional", "accumulate": 2},
        {"recipe": "transformer"},
        {"optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.2)},
    ],
    ids=["clipped sgd", "convolutional", "transformer", "an optimiser of one's own"],
)
def test_a_member_is_a_run_by_itself(options: dict[str, Any]) -> None:
    """To the bit: weights and statistics."""
    model = ensemble()
    alone = [bf.bayesify(deepcopy(model.member(i)), "point") for i in range(MEMBERS)]
    fit(model, own(), **options)
    for i, one in enumerate(alone):
        fit(one, own().for_member(i), **options)
        member, expected = model.member(i).state_dict(), one.mean_net().state_dict()
        exact = "recipe" not in options or "accumulate" not in options  # a third of a half is rounded
        for name, value in expected.items():
            torch.testing.assert_close(member[name], value, **({"rtol": 0, "atol": 0} if exact else {}))


def test_what_members_share_keeps_the_gradient_of_the_mean() -> None:
    """The noise of a regression: with members that start alike, that of a single run."""
    split = Split(X, X[:, :1])
    plain = nn.Linear(6, 1)
    model = bf.bayesify(
        deepcopy(plain), bf.DeepEnsemble(bf.Point(), MEMBERS), bf.likelihoods.Normal(learn_std=True)
    )
    for member in model.posterior.nets(model.net):
        member.load_state_dict(plain.state_dict())
    one = bf.bayesify(plain, "point", bf.likelihoods.Normal(learn_std=True))
    for each in (model, one):
        fit(each, Loader(split, NUM), **SGD)  # one batch, the same for all
    torch.testing.assert_close(model.likelihood.state_dict(), one.likelihood.state_dict())
    torch.testing.assert_close(model.member(2).state_dict(), one.mean_net().state_dict())


def orders(loader: Any, epoch: int = 0, start: int = 0) -> Tensor:
    """(members, examples): which examples each sees, by the number in the last place of the batch."""
    state = torch.get_rng_state()
    found, note = apart(loader, ensemble())
    torch.set_rng_state(state)
    assert note is None
    found.set_epoch(epoch)
    found.start_at(start)
    return torch.cat([torch.stack([one[-1] for one in each.each]) for each in found], 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_every_member_sees_all_examples_in_an_order_of_its_own(workers: int) -> None:
    numbered = Loader(Split(X, torch.arange(NUM)), BATCH, shuffle=True, seed=3)
    persistent = torchs(num_workers=workers, persistent_workers=workers > 0)
    for loader in (numbered, persistent, torchs(generator=torch.Generator().manual_seed(5))):
        first, second = orders(loader), orders(loader, epoch=1)
        for seen in (*first, *second):
            assert torch.equal(seen.sort().values, torch.arange(NUM))
        every = [seen.tolist() for seen in (*first, *second)]
        assert len({tuple(seen) for seen in every}) == 2 * MEMBERS
    assert torch.equal(orders(numbered, 1, 2), orders(numbered, 1)[:, 2 * BATCH :])


def test_every_member_has_an_augmentation_of_its_own() -> None:
    """Of the loader on the device, and of a data set that draws from torch's random numbers."""
    images = Split(torch.rand(4, 3, 12, 12), torch.arange(4))
    device = Loader(images, 4, augment="crop_flip")

    class Noisy(Dataset[tuple[Tensor, int]]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> tuple[Tensor, int]:
            return torch.randn(()), index

    for loader in (device, DataLoader(Noisy(), 4, shuffle=True)):
        batch = next(iter(apart(loader, ensemble())[0]))
        inputs = [x[y.argsort()] for x, y in batch.each]
        assert not any(torch.equal(inputs[i], inputs[j]) for i in range(MEMBERS) for j in range(i))


def test_workers_are_shared_out() -> None:
    found = apart(torchs(num_workers=2), ensemble())[0]
    assert [each.num_workers for each in found.loaders] == [1, 1, 1]


class Backwards(Sampler[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(NUM - 1, -1, -1))

    def __len__(self) -> int:
        return NUM


class Stream(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return zip(X, Y, strict=True)


class Wrapped:
    """Passes the attributes of a loader on, as wrappers do."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __len__(self) -> int:
        return len(self.inner)

    def __iter__(self) -> Any:
        return iter(self.inner)


class Counting(DataLoader[Any]):
    def __iter__(self) -> Any:
        return super().__iter__()


EXAMPLES = TensorDataset(X, Y)


@pytest.mark.parametrize(
    ("loader", "reason"),
    [
        ([(X, Y)], "train_loader is a list; a DataLoader with shuffle=True gives each member its own"),
        (Wrapped(own()), "train_loader is a Wrapped; a DataLoader"),
        (Counting(EXAMPLES, BATCH, shuffle=True), "train_loader is a Counting; a DataLoader"),
        (DataLoader(Stream(), BATCH), "train_loader is a stream"),
        (
            DataLoader(EXAMPLES, BATCH),
            "train_loader takes it from a SequentialSampler; with shuffle=True each",
        ),
        (DataLoader(EXAMPLES, BATCH, sampler=Backwards()), "takes it from a Backwards; with shuffle=True"),
        (
            DataLoader(
                EXAMPLES, batch_sampler=type("Own", (BatchSampler,), {})(RandomSampler(EXAMPLES), 9, False)
            ),
            "takes it from a Own; with shuffle=True each has its own",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_where_members_cannot_have_batches_of_their_own_a_note_says_so(loader: Any, reason: str) -> None:
    history = fit(ensemble(num_data=NUM), loader, epochs=1, recipe=None)
    found = [note for note in history.notes if "the same batches in the same order: " in note]
    assert len(found) == 1 and reason in found[0]
    model = bf.bayesify(net(), "point")
    assert apart(loader, model) == (loader, None)  # a network alone has nothing to share


@pytest.mark.parametrize("kind", ["own", "torch", "generator"])
def test_a_run_that_was_stopped_ends_bit_for_bit(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside of an epoch, with several batches a step, KL, warm-up and moving average."""

    def run(folder: Path) -> None:
        split = Split(X, Y)
        order = torch.Generator().manual_seed(2) if kind == "generator" else None
        pairs = DataLoader(TensorDataset(X, Y), 8, shuffle=True, generator=order)
        loader = Loader(split, 8, shuffle=True) if kind == "own" else pairs
        options = {"ema": 0.9, "kl_warmup": 1.0, "schedule": "cosine", "clip_norm": 1.0, "lr": 0.01}
        more = {"accumulate": 2, "checkpoint_every": 2, "folder": folder}
        fit(ensemble(bf.MonteCarloVI()), loader, val_loader=[(X, Y)], **options, **more)

    run(tmp_path / "whole")
    step, count = Loop._step, 0

    def stopping(self: Any, group: Any) -> None:
        nonlocal count
        count += 1
        if count == 10:
            raise KeyboardInterrupt
        step(self, group)

    monkeypatch.setattr(Loop, "_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "parts")
    monkeypatch.undo()
    assert not (tmp_path / "parts" / "model.safetensors").exists()
    run(tmp_path / "parts")
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


@pytest.mark.parametrize("method", [bf.IVON(), bf.ThermostatMCMC(), bf.MCDropout(0.1)], ids=lambda m: m.name)
def test_members_by_any_method(method: bf.methods.Method) -> None:
    """Optimisers that count members themselves get the mean over them, as in a loop of one's own."""
    plain = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    model = bf.bayesify(plain, bf.DeepEnsemble(method, MEMBERS), num_data=NUM)
    sgd = torch.optim.SGD(model.parameters())
    times = MemberGradients(model, sgd, method.own_optimizer).times
    assert MemberGradients(model, sgd, is_own=False).times == MEMBERS  # the plain epochs before a chain
    assert times == (MEMBERS if method.name == "mc_dropout" else 1)
    history = fit(model, own(), epochs=8, on_bad_sampling="ignore")
    assert history[-1]["nll"] < history[0]["nll"]
    with model.uncautioned():
        assert model.predict(X).probs.isfinite().all()


def test_a_batch_for_every_member_is_the_mean_over_members() -> None:
    """What a loop of one's own gives stays one batch for all."""
    model = ensemble().eval()
    xs, ys = list(X[:24].split(8)), list(Y[:24].split(8))
    each = [nn.functional.cross_entropy(model.member(i).eval()(xs[i]), ys[i]) for i in range(MEMBERS)]
    found = model(PerMember(xs), target=PerMember(ys))
    torch.testing.assert_close(found.total.detach(), torch.stack(each).mean().detach())
    same = model(PerMember([X] * MEMBERS), target=PerMember([Y] * MEMBERS))
    torch.testing.assert_close(same, model.loss(X, Y))
    xs[2] = xs[2] / 0
    with pytest.raises(NonFiniteLossError, match="the batch holds NaN or infinite values"):
        model(PerMember(xs), target=PerMember(ys))
