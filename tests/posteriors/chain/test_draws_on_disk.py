"""Draws stay on disk: the file of a run names them, predictions read them, and references lead nowhere else."""

import copy
import json
import os
import pickle
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from test_chain import DATA, make, make_net, sample, weights

import bayesify as bf
from bayesify import atomic
from bayesify.data import Loader, Split
from bayesify.files.storage import save_in_run
from bayesify.posteriors.chain import stored_draws
from bayesify.rows import rows_of

X = DATA[0]
pytestmark = pytest.mark.filterwarnings("ignore::bayesify.SamplingWarning")


@pytest.fixture(autouse=True)
def _nothing_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_draws, "MEMORY", 0)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of two epochs, with its best model."""
    fit(make(burn_in=0, every=2), tmp_path / "run")
    return tmp_path / "run"


def fit(model: bf.BayesianModule, folder: Path, **options: Any) -> bf.History:
    loader = Loader(Split(*DATA), 8, shuffle=True, seed=1)
    settings: dict[str, Any] = {"epochs": 2, "lr": 1e-2, "seed": 0, "progress": False, "folder": folder}
    return bf.fit(model, loader, Loader(Split(*DATA), 32), **{**settings, **options})


def load(path: Path) -> bf.BayesianModule:
    return bf.load(path, make_net())


def change(path: Path, **changes: Any) -> None:
    """The same file with another header, sealed anew."""
    header = atomic.read_header(path)
    kept = {key: value for key, value in header.items() if key not in ("aliases", "checksums", "layout")}
    atomic.write_tensors(path, atomic.read_tensors(path, header), {**kept, **changes})


@pytest.mark.parametrize("sampler", ["atmc", "sgnht", "sghmc", "sgld", "psgld"])
def test_a_run_holds_each_draw_once_and_predicts_the_same_bits(sampler: str, tmp_path: Path) -> None:
    model = make(burn_in=0, every=2, sampler=sampler)
    fit(model, tmp_path / "run", lr=None)
    assert model.posterior.store.memory == {}
    assert len(list((tmp_path / "run/draws").glob("draw-*"))) == 4
    for name in ("model.safetensors", "best.safetensors"):
        header = atomic.read_header(tmp_path / "run" / name)
        assert header["format"] == 4 and header["references"]["posterior.draws"]["folder"] == "draws"
        assert not any("draws." in key for key in atomic.read_tensors(tmp_path / "run" / name, header))
    bf.save(model, tmp_path / "one.safetensors")
    assert atomic.read_header(tmp_path / "one.safetensors")["format"] == 3  # as before
    (tmp_path / "run").rename(tmp_path / "moved")
    whole = make(sampler=sampler)
    for again in (load(tmp_path / "moved/model.safetensors"), load(tmp_path / "one.safetensors")):
        again.cautioned = True
        for num_draws, batched in ((20, None), (20, False), (3, True)):
            expected, found = (
                m.predict(X, num_draws, batched=batched, keep_samples=True) for m in (inside(again), again)
            )
            assert torch.equal(found.samples, expected.samples) and torch.equal(found.probs, expected.probs)
        assert again.posterior.store.memory == {}
        whole.load_state_dict(again.state_dict())  # a state dict holds the draws themselves
        assert torch.equal(whole.predict(X).probs, again.predict(X).probs)
        assert torch.equal(weights(again.mean_net()), weights(whole.mean_net()))


def inside(model: bf.BayesianModule) -> bf.BayesianModule:
    """A model of the same draws, all in memory."""
    other = bf.bayesify(make_net(), model.method, num_data=32)
    other.load_state_dict(model.state_dict())
    other.cautioned = True
    assert len(other.posterior.store.memory) == len(other.posterior.store)
    return other


def test_a_single_file_may_be_replaced_while_its_draws_are_used(tmp_path: Path) -> None:
    model = make(burn_in=0, every=2)
    sample(model, 8)
    path = tmp_path / "m.safetensors"
    bf.save(model, path)
    again = load(path)
    expected = again.predict(X).probs
    bf.save(again, path)
    assert torch.equal(load(path).predict(X).probs, expected)
    other = make(burn_in=0, every=1)
    sample(other, 3)
    bf.save(other, path)
    twin = copy.deepcopy(again)
    path.unlink()
    assert torch.equal(again.predict(X).probs, expected) and torch.equal(twin.predict(X).probs, expected)


def test_rows_are_read_by_threads_and_after_pickling(tmp_path: Path) -> None:
    values = torch.randn(50, 3, 200)
    path = tmp_path / "rows.safetensors"
    atomic.write_tensors(path, {"a": values, "b": torch.zeros(50, 0), "c": torch.arange(50).bfloat16()}, {})
    found = atomic.read_tensors(path, atomic.read_header(path), by_row=lambda name: True)
    rows = pickle.loads(pickle.dumps(found["a"]))
    wrong: list[int] = []

    def look(first: int) -> None:
        wrong.extend(i for i in range(first, 50) if not torch.equal(rows[i], values[i]))

    threads = [threading.Thread(target=look, args=(i,)) for i in range(4)]
    [t.start() for t in threads], [t.join() for t in threads]
    assert not wrong
    assert found["b"][3].shape == (0,) and found["c"][7].item() == 7 and found["c"].dtype == torch.bfloat16
    os.truncate(path, path.stat().st_size - 1000)
    with pytest.raises(ValueError, match=r"rows.safetensors is damaged: it has become shorter"):
        rows[49]


def test_draws_in_a_single_file_are_checked_when_it_is_loaded(tmp_path: Path) -> None:
    model = make(burn_in=0, every=2)
    sample(model, 8)
    path = tmp_path / "m.safetensors"
    bf.save(model, path)
    rows = rows_of(path, ["posterior.draws.0.weight"])["posterior.draws.0.weight"]
    content = bytearray(path.read_bytes())
    content[rows.start + 2 * rows.row_size + 5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"the bytes of tensor 'posterior.draws.0.weight' have changed"):
        load(path)


def test_a_draw_of_a_run_is_checked_when_it_is_first_read(run: Path) -> None:
    model = load(run / "model.safetensors")
    file = run / "draws/draw-000-000000004.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)
    with pytest.raises(ValueError, match=r"draw-000-000000004.safetensors is damaged: the bytes of tensor"):
        model.predict(X)


def test_a_draw_that_is_missing_or_another_is_named(run: Path) -> None:
    file, other = (run / f"draws/draw-000-00000000{step}.safetensors" for step in (4, 6))
    model = load(run / "model.safetensors")
    kept = file.read_bytes()
    file.write_bytes(other.read_bytes())
    with pytest.raises(
        ValueError, match=r"000000004.safetensors is another draw than the model was saved with"
    ):
        model.predict(X)
    file.unlink()
    with pytest.raises(FileNotFoundError, match="draw-000-000000004.safetensors does not exist"):
        model.predict(X)
    net = make_net()
    words = r"draws lacks 1 of 4 draws of the model, the first is draw-000-000000004.safetensors. .* bf.save makes"
    with pytest.raises(FileNotFoundError, match=words):
        bf.load(run / "model.safetensors", net)
    assert torch.equal(weights(net), weights(make_net()))
    file.write_bytes(kept)
    assert bf.load(run / "model.safetensors", net).predict(X).num_draws == 4


@pytest.mark.parametrize("name", ["../draws", "/tmp", "draws/..", "", "a//b", "draws\\..", ".", "~", 3])
def test_references_lead_to_folders_beside_the_file_only(run: Path, name: Any) -> None:
    seals = atomic.read_header(run / "model.safetensors")["references"]["posterior.draws"]["seals"]
    change(run / "model.safetensors", references={"posterior.draws": {"folder": name, "seals": seals}})
    with pytest.raises(
        ValueError, match="only folders beside it are opened|does not say where its draws are"
    ):
        load(run / "model.safetensors")


def test_references_through_links_are_refused(run: Path, tmp_path: Path) -> None:
    model = load(run / "model.safetensors")
    (run / "draws").rename(tmp_path / "elsewhere")
    (run / "draws").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="draws is a link: the draws of .* must lie in a folder beside it"):
        load(run / "model.safetensors")
    (run / "draws").unlink()
    shutil.copytree(tmp_path / "elsewhere", run / "draws")
    file = run / "draws/draw-000-000000004.safetensors"
    file.unlink()
    file.symlink_to(tmp_path / "elsewhere" / file.name)
    with pytest.raises(
        ValueError, match="000000004.safetensors is a link: draws are files of the run itself"
    ):
        model.predict(X)


@pytest.mark.parametrize("reference", [None, [], {"folder": "draws"}, {"folder": "draws", "seals": [1]}])
def test_damaged_references_are_named(run: Path, reference: Any) -> None:
    change(run / "model.safetensors", references={"posterior.draws": reference})
    with pytest.raises(ValueError, match="does not say where its draws are|names 1 draws in .*, but has 4"):
        load(run / "model.safetensors")


def test_a_model_of_a_run_goes_on_there_and_elsewhere(run: Path, tmp_path: Path) -> None:
    """From the best model, whose draws are not all: those of the run stay, and come back with its checkpoint."""
    best = load(run / "best.safetensors")
    best.posterior.store.keys[2:] = []
    save_in_run(best, run / "best.safetensors")
    again = load(run / "best.safetensors")
    assert again.posterior.num_draws == 2
    files = {path.name: path.read_bytes() for path in (run / "draws").iterdir()}
    fit(again, run)
    assert again.posterior.num_draws == 4
    assert {path.name: path.read_bytes() for path in (run / "draws").iterdir()} == files
    elsewhere = load(run / "best.safetensors")
    fit(elsewhere, tmp_path / "other")
    assert len(json.loads((tmp_path / "other/draws/index.json").read_text())["draws"]) == 6
    assert load(tmp_path / "other/model.safetensors").posterior.num_draws == 6


def test_later_draws_of_a_run_that_was_cut_off_stay_until_they_come_again(run: Path) -> None:
    """The best model may name them: it was saved after the checkpoint from which the run goes on."""
    model = make(burn_in=0, every=2)
    model.posterior.begin(folder=run / "draws")
    sample(model, 4)
    names = sorted(path.name for path in (run / "draws").glob("draw-*"))
    assert [int(name[9:18]) for name in names] == [2, 4, 6, 8]
    sample(model, 1)
    model.collect()
    names = sorted(path.name for path in (run / "draws").glob("draw-*"))
    assert [int(name[9:18]) for name in names] == [2, 4, 5, 6, 8]


def test_ensembles_of_chains_merge_and_members(run: Path, tmp_path: Path) -> None:
    def several() -> bf.BayesianModule:
        method = bf.DeepEnsemble(bf.ThermostatMCMC(burn_in=0, every=2), num_members=2)
        return bf.bayesify(make_net(), method)

    model = several()
    fit(model, tmp_path / "several")
    header = atomic.read_header(tmp_path / "several/model.safetensors")
    folders = [found["folder"] for found in header["references"].values()]
    assert folders == ["draws/member-0", "draws/member-1"]
    assert torch.equal(
        bf.load(tmp_path / "several/model.safetensors", make_net()).predict(X).probs, model.predict(X).probs
    )
    fit(make(burn_in=0, every=2), tmp_path / "second", seed=1)
    merged = bf.merge([tmp_path / f"{name}/model.safetensors" for name in ("run", "second")], make_net())
    assert merged.predict(X).num_draws == 8
    assert all(part.store.memory == {} for part in merged.posterior.posteriors)
    bf.save(merged, tmp_path / "merged.safetensors")
    assert torch.equal(load(tmp_path / "merged.safetensors").predict(X).probs, merged.predict(X).probs)
    settings: dict[str, Any] = {"epochs": 1, "lr": 1e-2, "progress": False}
    trained = bf.fit_members(
        lambda: bf.bayesify(make_net(), bf.ThermostatMCMC(burn_in=0, every=2)),
        Loader(Split(*DATA), 8, shuffle=True, seed=1),
        num_members=2,
        folder=tmp_path / "members",
        seed=0,
        **settings,
    )
    assert trained is not None
    header = atomic.read_header(tmp_path / "members/model.safetensors")
    folders = [found["folder"] for found in header["references"].values()]
    assert folders == ["member-0/draws", "member-1/draws"]
    assert torch.equal(
        load(tmp_path / "members/model.safetensors").predict(X).probs, trained.predict(X).probs
    )


def test_draws_of_other_folders_are_part_of_a_file(run: Path, tmp_path: Path) -> None:
    """A chain with the draws of another run refers to nothing: its file would break with that run."""
    model = make(burn_in=0, every=2)
    model.posterior.begin(folder=tmp_path / "mine/draws")
    sample(model, 4)
    model.posterior.add_folder(run / "draws")
    save_in_run(model, tmp_path / "mine/model.safetensors")
    assert "references" not in atomic.read_header(tmp_path / "mine/model.safetensors")
    shutil.rmtree(run)
    assert load(tmp_path / "mine/model.safetensors").predict(X).num_draws == 6


def test_memory_does_not_grow_with_the_draws(tmp_path: Path) -> None:
    """400 draws of 50,000 weights are 80 MB, of which a few are in memory at a time."""
    net = torch.nn.Linear(1000, 50)
    model = bf.bayesify(net, bf.ThermostatMCMC(), num_data=10)
    model.posterior.begin(folder=tmp_path / "draws")
    for step in range(400):
        model.posterior.steps = step
        model.collect()
    save_in_run(model, tmp_path / "model.safetensors")
    bf.save(model, tmp_path / "one.safetensors")
    x = torch.randn(3, 1000)
    model.predict(x, 2)
    del model

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    for name in ("model.safetensors", "one.safetensors"):
        before, most = resident(), 0
        over = threading.Event()

        def watch(over: threading.Event = over) -> None:
            nonlocal most
            while not over.is_set():
                most = max(most, resident())
                time.sleep(0.001)

        watcher = threading.Thread(target=watch)
        watcher.start()
        loaded = bf.load(tmp_path / name, torch.nn.Linear(1000, 50))
        assert loaded.predict(x, 400).num_draws == 400
        over.set()
        watcher.join()
        assert most - before < 40 * 2**20
