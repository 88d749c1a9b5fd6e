"""Laplace on networks that nobody here wrote: factors where weights meet linear operations, else diagonals, by name;
layer by layer the same as by whole Jacobians."""

from typing import Any

import pytest
import torch
from zoo import ZOO

import bayesify as bf
from bayesify.passes.jacobian import flat, outputs, row_products
from bayesify.passes.layerwise import layer_products
from bayesify.posteriors.base import TrainingData
from bayesify.weights import as_call

#: network -> a weight with factors, and one without
NAMES: dict[str, tuple[str | None, str | None]] = {
    "transformers GPT-2, tied embeddings": ("transformer.h.0.attn.c_attn.weight", "transformer.wte.weight"),
    "transformers Swin": ("classifier.weight", None),
    "transformers ConvNext": (
        "classifier.weight",
        "convnext.encoder.stages.0.layers.0.layer_scale_parameter",
    ),
    "nn.TransformerEncoderLayer": ("self_attn.in_proj_weight", None),
    "nn.MultiheadAttention": ("in_proj_weight", None),
    "nn.GRU": (None, "weight_ih_l0"),
    "grouped conv": ("weight", None),
    "depthwise conv": ("weight", None),
    "transposed conv": (None, "weight"),
    "non-square kernel": ("weight", None),
    "tied linear layers": ("encode.weight", None),
}


@pytest.mark.parametrize("name", NAMES)
def test_factors_diagonals_and_outputs(name: str) -> None:
    torch.manual_seed(0)
    case = ZOO[name]()
    net, call = case.net.eval(), as_call(case.x)
    method = bf.Laplace("kron", prior_precision=10.0)
    model = bf.bayesify(net, method, bf.likelihood("normal", std=1.0), num_data=2, output=case.output)
    target = torch.zeros_like(model.pick(net(*call.args, **call.kwargs)))
    data = TrainingData(lambda: [(case.x, target)], 2, model.likelihood, model.pick)
    model.posterior.conclude(net, data)
    for wanted, words in zip(NAMES[name], ("Kronecker", "diagonal"), strict=True):
        found = [w.name for w in model.selection.random if words in model.posterior.describe(w.name)]
        assert wanted is None or any(each.endswith(wanted) for each in found), found
    law = model.posterior.linear_law(net)
    with torch.no_grad():
        numbers = flat(outputs(net, law.slots, law.weights, call, model.pick))
    rows = torch.randn(len(numbers), 2, numbers.shape[1], generator=torch.Generator().manual_seed(0))
    arguments: tuple[Any, ...] = (net, law.slots, law.weights, call, model.pick, rows)
    one, other = (
        torch.cat([law.of_outputs(products) for _, products in way(*arguments)]).detach()
        for way in (layer_products, row_products)
    )
    assert torch.allclose(one, other, rtol=1e-3, atol=1e-5 * float(other.abs().max()))
    assert (one.diagonal(dim1=1, dim2=2) > 0).all()
