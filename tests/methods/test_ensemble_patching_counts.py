"""The parameters of patched networks: Tables 1 and 3 of paper 2."""

import copy
from typing import Any

import pytest
from patched_cases import patched

import bayesify as bf
from bayesify.nets import make


@pytest.mark.parametrize("assignment", ["layer", "element"])
def test_the_parameters_of_resnet18(assignment: str) -> None:
    net = make("resnet18", num_outputs=1000, input_shape=(3, 224, 224))
    summary = bf.bayesify(net, bf.EnsemblePatching(5, assignment), num_data=10).summary()
    assert summary.num_parameters == 11_689_512
    assert summary.num_total == 13_779_912
    assert round(summary.overhead, 2) == 17.88
    patches = 21 if assignment == "layer" else 9_600 + 513_000
    assert f"effective ensemble size 5^{patches:,}" in str(summary)


@pytest.mark.parametrize(
    ("where", "overhead"), [(bf.where.norm, 0.328), (bf.where.output, 17.55), (bf.where.input, None)]
)
def test_the_overhead_of_parts_of_resnet18(where: Any, overhead: float | None) -> None:
    net = make("resnet18", num_outputs=1000, input_shape=(3, 224, 224))
    summary = bf.bayesify(net, bf.EnsemblePatching(5, where=where), num_data=10).summary()
    expected = 100 * 4 * 3 * 64 * 49 / 11_689_512 if overhead is None else overhead
    assert summary.overhead == pytest.approx(expected, abs=0.005)


@pytest.mark.parametrize(("assignment", "total"), [("dropout", 11_689_512), ("member", 58_447_560)])
def test_the_other_columns_of_table_3(assignment: str, total: int) -> None:
    net = make("resnet18", num_outputs=1000, input_shape=(3, 224, 224))
    model = bf.bayesify(net, bf.EnsemblePatching(5, assignment), num_data=10)
    assert model.summary().num_total == total


def test_the_parameters_of_pyramidnet() -> None:
    net = make("pyramidnet110", num_outputs=100, input_shape=(3, 32, 32))
    summary = bf.bayesify(net, bf.EnsemblePatching(5), num_data=10).summary()
    assert (summary.num_parameters, summary.num_total) == (28_511_307, 28_825_299)
    assert round(summary.overhead, 2) == 1.10


def test_the_parameters_of_the_mlp() -> None:
    """100 square layers of 100 units. The paper counts 1,129,100: hidden biases and no first batch-norm copy; a real
    network has 1,139,000, or 1,148,900 with hidden biases as well."""
    net = make(
        "mlp", num_outputs=100, input_shape=(100,), hidden=[100] * 99, batch_norm=True, output_bias=False
    )
    summary = bf.bayesify(net, bf.EnsemblePatching(5), num_data=10).summary()
    assert summary.num_total == 1_139_000
    extra = summary.num_total - summary.num_parameters
    assert extra == 4 * (2 * 99 * 100 + 100**2)
    assert 100 * 100**2 + 99 * 100 + extra == 1_129_100
    element = bf.bayesify(copy.deepcopy(net), bf.EnsemblePatching(5, "element"), num_data=10)
    assert f"5^{100**2 + 2 * 99 * 100:,}" in str(element.summary())  # K^(H² + 2(L−1)H)


def test_a_patched_layer_is_named_with_its_components() -> None:
    summary = patched().summary()
    assert summary.random == ["1.weight", "1.bias", "5.weight", "5.bias"]
    assert {row.reason for row in summary.rows if row.random} == {"5 components, by layer"}
    model = patched()
    assert tuple(model.get_parameter("posterior.components.5.weight").shape) == (4, 5, 72)
    assert model.get_parameter("net.5.weight") is model.net[5].weight
