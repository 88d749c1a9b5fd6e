"""Draws in a folder: atomic, bounded in memory, damaged ones left out, several folders joined."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from test_chain import DATA, make, make_net, sample, weights

import bayesify as bf
from bayesify.posteriors.chain import draw_files, stored_draws


def in_folder(folder: Path, steps: int = 8, **options: Any) -> bf.BayesianModule:
    model = make(burn_in=0, every=2, **options)
    model.posterior.begin(folder=folder)
    sample(model, steps)
    return model


def test_a_file_for_each_draw_and_an_index(tmp_path: Path) -> None:
    in_folder(tmp_path)
    names = [f"draw-000-{step:09d}.safetensors" for step in (2, 4, 6, 8)]
    assert sorted(p.name for p in tmp_path.iterdir()) == [*names, "index.json"]
    index = json.loads((tmp_path / "index.json").read_text())
    assert index["draws"] == [[0, 2], [0, 4], [0, 6], [0, 8]]
    assert index["shapes"]["0.weight"] == [4, 3]


def test_memory_is_bounded_and_prediction_reads_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = in_folder(tmp_path / "a").predict(DATA[0]).probs
    monkeypatch.setattr(stored_draws, "MEMORY", 200)  # one draw takes 26 · 4 bytes
    model = in_folder(tmp_path / "b")
    assert len(model.posterior.store.memory) == 1
    assert torch.equal(model.predict(DATA[0]).probs, expected)


def test_a_damaged_draw_is_named_and_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_draws, "MEMORY", 0)
    model = in_folder(tmp_path)
    file = tmp_path / "draw-000-000000004.safetensors"
    content = bytearray(file.read_bytes())
    content[-3] ^= 255
    file.write_bytes(content)
    with pytest.warns(UserWarning, match=r"draw-000-000000004.safetensors is damaged.*this draw is left out"):
        assert model.predict(DATA[0]).num_draws == 3
    assert model.predict(DATA[0]).num_draws == 3
    (tmp_path / "draw-000-000000006.safetensors").unlink()
    with pytest.warns(UserWarning, match="does not exist: this draw is left out"):
        model.mean_net()
    assert model.posterior.num_draws == 2


def test_a_full_disk_costs_a_draw_and_not_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_folder(tmp_path, steps=4)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(draw_files, "write_tensors", full)
    with pytest.warns(UserWarning, match="could not be written .*No space left on device.*left out"):
        sample(model, 2)
    assert model.posterior.num_draws == 2
    assert model.predict(DATA[0]).num_draws == 2


def test_draws_in_memory_move_to_the_folder(tmp_path: Path) -> None:
    model = make(burn_in=0, every=2)
    sample(model, 4)
    model.posterior.begin(folder=tmp_path)
    assert len(list(tmp_path.glob("draw-*"))) == 2
    assert "posterior.draws.0.weight" not in model.state_dict()


def test_folders_of_several_machines_are_joined(tmp_path: Path) -> None:
    for seed in range(3):
        model = make(burn_in=0, every=2)
        model.posterior.begin(folder=tmp_path / str(seed))
        sample(model, 4, model.optimizer(lr=1e-2, seed=seed, num_steps=None))
    joined = make()
    assert [joined.posterior.add_folder(tmp_path / str(seed)) for seed in range(3)] == [2, 2, 2]
    assert {key.chain for key in joined.posterior.store.keys} == {0, 1, 2}
    assert joined.predict(DATA[0], num_draws=20).num_draws == 6
    bf.save(joined, tmp_path / "all.safetensors")
    assert bf.load(tmp_path / "all.safetensors", make_net()).posterior.num_draws == 6


def test_folders_that_do_not_fit(tmp_path: Path) -> None:
    model = make()
    with pytest.raises(FileNotFoundError, match="holds no draws: it has no index.json"):
        model.posterior.add_folder(tmp_path)
    in_folder(tmp_path)
    other = bf.bayesify(torch.nn.Linear(3, 2), bf.ThermostatMCMC(), num_data=3)
    with pytest.raises(ValueError, match=r"draws of another network: they differ in weight, bias, 0.weight"):
        other.posterior.add_folder(tmp_path)
    (tmp_path / "index.json").write_text("{")
    with pytest.raises(ValueError, match="index.json is damaged"):
        model.posterior.add_folder(tmp_path)
    for text in ('{"format": 1}', "[1, 2]", '{"format": "1"}'):
        (tmp_path / "index.json").write_text(text)
        with pytest.raises(ValueError, match="index.json is damaged"):
            model.posterior.add_folder(tmp_path)
    (tmp_path / "index.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="newer bayesify"):
        model.posterior.add_folder(tmp_path)


def test_the_folder_of_a_run_and_one_that_is_there_already(tmp_path: Path) -> None:
    model = in_folder(tmp_path / "draws")
    with pytest.raises(FileNotFoundError, match="no index.json, but its folder 'draws' has one"):
        make().posterior.add_folder(tmp_path)
    with pytest.raises(ValueError, match="are in this chain already: add every folder once"):
        model.posterior.add_folder(tmp_path / "draws")
    other = make()
    other.posterior.add_folder(tmp_path / "draws")
    with pytest.raises(ValueError, match="in this chain already"):
        other.posterior.add_folder(tmp_path / "draws" / ".." / "draws")
    assert (model.posterior.num_draws, other.posterior.num_draws) == (4, 4)


def test_a_file_of_another_network_is_named_and_left_out(tmp_path: Path) -> None:
    in_folder(tmp_path)
    draw_files.write_tensors(
        tmp_path / "draw-000-000000004.safetensors", {"0.weight": torch.zeros(2, 2)}, {"draw": 1}
    )
    model = make()
    model.posterior.add_folder(tmp_path)
    words = r"draw-000-000000004.safetensors is of another network: it differs in 0.weight, .*left out"
    with pytest.warns(UserWarning, match=words):
        assert model.predict(DATA[0]).num_draws == 3


def test_going_back_to_a_checkpoint_forgets_later_draws(tmp_path: Path) -> None:
    """State of step 4; the chain went on to 8 and was killed. Resumed, it writes the same files again."""
    model = in_folder(tmp_path, steps=4)
    state = {key: value.clone() for key, value in model.state_dict().items()}
    sampler = model.optimizer(lr=1e-2, seed=0)
    chain_state = sampler.state_dict()
    sample(model, 4, sampler)
    later = {path.name: path.read_bytes() for path in tmp_path.glob("draw-*")}
    fresh = make(burn_in=0, every=2)
    fresh.posterior.begin(folder=tmp_path)
    fresh.load_state_dict(state)
    assert fresh.posterior.num_draws == 2
    again = fresh.optimizer(lr=1e-2, seed=5)
    again.load_state_dict(chain_state)
    sample(fresh, 4, again)
    assert {path.name: path.read_bytes() for path in tmp_path.glob("draw-*")} == later
    assert torch.equal(weights(fresh.net), weights(model.net))
