"""κ against the Hessian by autograd, and the recorder of the phase transition."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bayesify as bf
from bayesify.nets.parts import Abs
from bayesify.studies.diagnostics import PhaseRecorder, kappa, phase_figures
from bayesify.studies.diagnostics.curvature import closed_form_of, dense_curvature
from bayesify.studies.diagnostics.phase_transition import EDGES, Row, histogram


def data(num: int = 30, shape: tuple[int, ...] = (6,), seed: int = 0) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num, *shape, dtype=torch.float64, generator=generator)
    return list(zip(x.split(10), torch.randint(3, (num,), generator=generator).split(10), strict=True))


def trained_norm(width: int) -> nn.BatchNorm1d:
    norm = nn.BatchNorm1d(width)
    with torch.no_grad():
        for tensor in (norm.weight, norm.running_var):
            tensor.uniform_(0.5, 2.0)
        for tensor in (norm.bias, norm.running_mean):
            tensor.normal_()
    return norm


def hessian_diagonal(model: bf.BayesianModule, name: str, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
    net = model.mean_net().eval()
    weight = net.get_parameter(name).detach()

    def loss(flat: Tensor) -> Tensor:
        return sum(
            nn.functional.cross_entropy(
                torch.func.functional_call(net, {name: flat.view_as(weight)}, (x,)), y, reduction="sum"
            )
            for x, y in batches
        )

    return torch.func.hessian(loss)(weight.flatten()).diagonal().view_as(weight)


NETS: dict[str, tuple[Any, str, tuple[int, ...]]] = {
    "softplus": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 3)), "0.weight", (6,)),
    "batch norm": (
        lambda: nn.Sequential(nn.Linear(6, 5), trained_norm(5), nn.Softplus(), nn.Dropout(), nn.Linear(5, 3)),
        "0.weight",
        (6,),
    ),
    "abs": (
        lambda: nn.Sequential(nn.Linear(6, 5), trained_norm(5), Abs(), nn.Linear(5, 3)),
        "0.weight",
        (6,),
    ),
    "head": (lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3)), "2.weight", (6,)),
    "deep": (
        lambda: nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 5), nn.Softplus(), nn.Linear(5, 3)),
        "0.weight",
        (6,),
    ),
    "conv": (
        lambda: nn.Sequential(nn.Conv1d(1, 2, 3), nn.Softplus(), nn.Flatten(), nn.Linear(8, 3)),
        "0.weight",
        (1, 6),
    ),
}


@pytest.mark.parametrize("case", NETS)
def test_exact_kappa_is_the_hessian_diagonal(case: str) -> None:
    make, name, shape = NETS[case]
    model = bf.bayesify(make().double(), bf.VarianceNetwork(init_log_alpha=1.0), num_data=30)
    batches = data(shape=shape)
    expected = (
        hessian_diagonal(model, name, batches) * math.e * model.net.get_parameter(name).detach().square()
    )
    found = kappa(model, batches, [name], way="exact")[name]
    torch.testing.assert_close(found, expected.abs(), atol=1e-10, rtol=1e-10)
    net = model.mean_net().eval()
    closed = closed_form_of(net, name, bf.likelihood("categorical"))
    assert (closed is not None) == (case in ("softplus", "batch norm", "abs"))


def hessian_at_outputs(net: nn.Sequential, place: int, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs a (batch, inputs) of a dense layer and the Hessians in its outputs (batch, outputs, outputs)."""
    inputs = net[:place](x).detach()
    outputs = net[place](inputs).detach()

    def loss(shift: Tensor) -> Tensor:
        return nn.functional.cross_entropy(net[place + 1 :](outputs + shift), y, reduction="sum")

    whole = torch.func.hessian(loss)(torch.zeros_like(outputs))  # (batch, outputs, batch, outputs)
    return inputs, torch.stack([whole[n, :, n] for n in range(len(x))])


def probe_noise(model: bf.BayesianModule, name: str, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Variance and largest size of the error of one ±1 probe, for each weight.

    v_i (Hv)_i = H_ii + Σ_{j≠i} H_ij v_i v_j: variance Σ_{j≠i} H_ij², at most Σ_{j≠i} |H_ij|. Of a dense layer the
    probes are at the outputs of every example and count a² times.
    """
    net = model.mean_net().eval().requires_grad_(False)
    assert isinstance(net, nn.Sequential)
    place, weight = int(name[0]), net.get_parameter(name).detach()
    if isinstance(net[place], nn.Linear):
        inputs, hessians = hessian_at_outputs(net, place, x, y)
        off = hessians - hessians.diagonal(dim1=1, dim2=2).diag_embed()
        variance = off.square().sum(2).T @ inputs**4
        return variance, off.abs().sum(2).T @ inputs**2

    def loss(flat: Tensor) -> Tensor:
        output = torch.func.functional_call(net, {name: flat.view_as(weight)}, (x,))
        return nn.functional.cross_entropy(output, y, reduction="sum")

    hessian = torch.func.hessian(loss)(weight.flatten())
    off = hessian - hessian.diagonal().diag()
    return off.square().sum(1).view_as(weight), off.abs().sum(1).view_as(weight)


@pytest.mark.parametrize("case", ["deep", "conv", "head"])
def test_hutchinson_probes_are_unbiased(case: str) -> None:
    """m = 2,000 probes, each weight within Bernstein's bound: with V and B of one probe's error, |mean| > t has
    probability 2 exp(−m t²/(2V + 2Bt/3)) at most; 1e-6 is shared among the weights. That is 2 to 5 % of the whole
    diagonal, whose root mean square error √(ΣV/m) is below 1 %."""
    make, name, shape = NETS[case]
    torch.manual_seed(0)
    model = bf.bayesify(make().double(), bf.VarianceNetwork(), num_data=30)
    ((x, y),) = batches = data(10, shape)
    exact = kappa(model, batches, [name], way="exact")[name]
    m, generator = 2000, torch.Generator().manual_seed(0)
    found = kappa(model, batches, [name], way="hutchinson", num_probes=m, generator=generator)[name]
    scale = model.posterior.random_tensor(name).at(model.net.get_parameter(name)).variance.detach()  # of κ
    variance, largest = probe_noise(model, name, x, y)
    variance, largest = scale.square() * variance, scale * largest
    log = math.log(2 * exact.numel() / 1e-6)
    bound = (largest * log / 3 + ((largest * log / 3) ** 2 + 2 * m * variance * log).sqrt()) / m
    assert ((found - exact).abs() <= bound).all()
    size = (variance.sum() / m).sqrt()
    assert size < 0.01 * exact.norm()
    if case == "deep":  # "auto" takes probes where there is no closed form
        generator.manual_seed(0)
        auto = kappa(model, batches, [name], num_probes=2000, generator=generator)[name]
        torch.testing.assert_close(auto, found)


def test_the_closed_form_is_given_up_where_the_network_does_more() -> None:
    class Doubled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(6, 5), nn.Softplus(), nn.Linear(5, 3))

        def forward(self, x: Tensor) -> Tensor:
            return 2 * self.layers(x)

    model = bf.bayesify(Doubled().double(), bf.VarianceNetwork(), num_data=30)
    name = "layers.0.weight"
    expected = (
        hessian_diagonal(model, name, data()) * math.exp(-5) * model.net.layers[0].weight.detach().square()
    )
    found = kappa(model, data(), [name], way="exact")[name]
    torch.testing.assert_close(found, expected.abs(), atol=1e-10, rtol=1e-10)


def test_dense_curvature_alone() -> None:
    a, w, v = (torch.randn(s, dtype=torch.float64) for s in ((4, 3), (5, 3), (2, 5)))
    y = torch.tensor([0, 1, 1, 0])

    def loss(flat: Tensor) -> Tensor:
        hidden = nn.functional.softplus(a @ flat.view(5, 3).T)
        return nn.functional.cross_entropy(hidden @ v.T, y, reduction="sum")

    expected = torch.func.hessian(loss)(w.flatten()).diagonal().view(5, 3)
    torch.testing.assert_close(dense_curvature(a, a @ w.T, y, v), expected, atol=1e-12, rtol=1e-12)


def test_errors_of_kappa() -> None:
    model = bf.bayesify(NETS["softplus"][0](), bf.VarianceNetwork(), num_data=30)
    with pytest.raises(ValueError, match="way='fast' does not exist; choose from auto, exact, hutchinson"):
        kappa(model, [], way="fast")
    with pytest.raises(ValueError, match="names: 'x' is no random weight; there are 0.weight, 2.weight"):
        kappa(model, [], ["x"])
    with pytest.raises(ValueError, match="the loader is empty"):
        kappa(model, [])


# -- recorder ----------------------------------------------------------------------------------------------
def test_histograms_count_every_weight() -> None:
    counts = histogram(torch.tensor([0.0, 1e-30, 1.0, 10**1.6, 1e20]))
    assert sum(counts) == 5 and counts[0] == 2 and counts[-1] == 1
    assert counts[EDGES.index(0.0)] == 1 and counts[EDGES.index(1.5)] == 1


def test_the_transition_is_named_by_epoch_and_layer() -> None:
    recorder = PhaseRecorder([])
    assert recorder.transition().epoch is None
    accuracies = [0.9, 0.3, 0.92, 0.91, 0.4, 0.1]  # a dip that comes back does not count
    recorder.rows = [Row(i + 1, a, 0.9, 0.95, {}) for i, a in enumerate(accuracies)]
    assert recorder.transition() == (5, ())
    recorder.rows[-1].without_noise = {"conv.weight": 0.94, "dense.weight": 0.12}
    assert recorder.transition() == (5, ("dense.weight",))
    assert str(recorder.transition()) == "phase transition at epoch 5 in dense.weight"
    recorder.rows = recorder.rows[:4]
    assert "no phase transition" in str(recorder.transition())


def test_recording_with_fit(tmp_path: Path) -> None:
    """A zero-mean layer is in its high-variance state from the start; the file lets a run go on."""
    net = NETS["batch norm"][0]()
    method = bf.VarianceNetwork(parameterization="zero_mean")
    model = bf.bayesify(net, method, num_data=30)
    batches = [(x.float(), y) for x, y in data()]
    path = tmp_path / "phase.json"
    recorder = PhaseRecorder(batches, batches, num_draws=3, path=path)
    history = bf.fit(model, batches, epochs=2, progress=False, on_epoch=recorder.record, accelerator="cpu")
    assert {"deterministic_accuracy", "stochastic_accuracy", "ensemble_accuracy"} <= set(history[-1])
    assert [row.epoch for row in recorder.rows] == [1, 2]
    row = recorder.rows[-1]
    assert row.log_alpha == {"0.weight": 20.0}
    assert row.without_noise["0.weight"] == pytest.approx(row.deterministic)
    assert sum(row.histogram["0.weight"]) == 30
    assert PhaseRecorder(batches, path=path).rows == recorder.rows
    for figure in (
        phase_figures.accuracy_figure(recorder.rows),
        phase_figures.kappa_figure(recorder.rows, "0.weight"),
        phase_figures.above_figure(recorder.rows, "0.weight"),
    ):
        figure.savefig(tmp_path / "figure.png")
        assert (tmp_path / "figure.png").stat().st_size > 1000
    with pytest.raises(ValueError, match="κ was not recorded for it; give PhaseRecorder a kappa_loader"):
        phase_figures.kappa_figure([], "0.weight")


def test_recording_leaves_training_as_it_is() -> None:
    batches = [(x.float(), y) for x, y in data()]
    results = []
    for recorded in (False, True):
        torch.manual_seed(3)
        model = bf.bayesify(NETS["batch norm"][0](), bf.VarianceNetwork(), num_data=30)
        recorder = PhaseRecorder(batches, batches, num_draws=2)
        on_epoch = recorder.record if recorded else None
        bf.fit(model, batches, epochs=2, progress=False, on_epoch=on_epoch, seed=0, accelerator="cpu")
        results.append({k: v.clone() for k, v in model.state_dict().items()})
    assert all(torch.equal(results[0][k], results[1][k]) for k in results[0])
