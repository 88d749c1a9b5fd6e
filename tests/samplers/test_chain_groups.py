"""One chain for every group of processes: the same draws as by one process, merged into one model."""

import os
import subprocess
import sys
from pathlib import Path

import chain_groups_job
import pytest
import torch
from chain_groups_job import chains, loader, make_model

import bayesify as bf
from bayesify.studies.diagnostics import function_values, rhat

X = torch.linspace(-1, 1, 12).view(4, 3)


def torchrun(folder: Path, num_groups: int) -> bf.BayesianModule:
    """Two processes in `num_groups` groups; what they wrote."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    source = str(Path(bf.__file__).parents[1])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source}
    arguments = [*command, chain_groups_job.__file__, str(folder), str(num_groups)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=300, env=environment)
    assert result.returncode == 0, result.stdout[-3000:] + result.stderr[-6000:]
    return bf.load(folder / "model.safetensors", make_model().net)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> bf.BayesianModule:
    model = chains(tmp_path_factory.mktemp("alone"))
    assert model is not None
    return model


def test_two_chains_in_one_process(alone: bf.BayesianModule, tmp_path: Path) -> None:
    """Chain i is what bf.fit gives with seed + i and its own order; R-hat sees two, predictions average over both."""
    values = function_values(alone, X)
    assert values.shape == (2, 4, 8)  # (chains, draws, outputs)
    assert rhat(values).shape == (8,)
    own = []
    for i in range(2):
        torch.manual_seed(7 + i)
        one = make_model()
        bf.fit(
            one,
            loader().for_member(i),
            epochs=3,
            lr=1e-2,
            seed=7 + i,
            folder=tmp_path / str(i),
            progress=False,
        )
        assert one.posterior.num_draws == 4
        own.append(function_values(one, X)[0])
    assert torch.equal(values, torch.stack(own))
    probs = torch.stack(own).view(2, 4, 4, 2).softmax(-1).mean((0, 1))
    torch.testing.assert_close(alone.predict(X, 8).probs, probs, rtol=1e-5, atol=1e-6)


def test_a_chain_for_every_process(alone: bf.BayesianModule, tmp_path: Path) -> None:
    """Bit for bit the chains of one process."""
    assert torch.equal(function_values(torchrun(tmp_path, 2), X), function_values(alone, X))


def test_a_chain_by_two_processes(alone: bf.BayesianModule, tmp_path: Path) -> None:
    """One group of two: the same noise on both and the gradient of the joined batch, whose halves are summed in
    another order: float32 rounding of twelve steps."""
    values = function_values(torchrun(tmp_path, 1), X)
    torch.testing.assert_close(values, function_values(alone, X), rtol=1e-4, atol=1e-5)
