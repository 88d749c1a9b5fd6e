"""bf.VarianceNetwork: bad options, and what warns."""

from typing import Any

import pytest
from test_variance_network import mlp, model_of

import bayesify as bf


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameterization": "row"}, "parameterization='row' does not exist; choose from"),
        ({"noise": "cauchy"}, "noise='cauchy' does not exist"),
        ({"kl": "taylor"}, "kl='taylor' does not exist"),
        ({"noise": "uniform"}, "noise='uniform' needs parameterization='zero_mean'"),
        ({"prior": "normal"}, r"prior=normal.* does not fit: use 'log_uniform' or 'student_t'"),
        ({"prior": "student_t", "kl": "sigmoid"}, "kl='sigmoid' .* needs prior='log_uniform'"),
        ({"sampling": "flipout"}, "sampling='flipout' does not exist; choose from local, draw"),
        ({"log_alpha_lr": 0.0}, "log_alpha_lr=0.0 must be a number above 0"),
        (
            {"max_log_alpha": -30.0},
            "init_log_alpha=-5.0 must lie between min_log_alpha=-20.0 and max_log_alpha=-30.0",
        ),
    ],
)
def test_errors(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bf.VarianceNetwork(**options)


def test_the_stochastic_kl_warns() -> None:
    with pytest.warns(UserWarning, match="the gradient of this estimator has no finite mean"):
        method = bf.VarianceNetwork(kl="stochastic")
    model = bf.bayesify(mlp(), method, num_data=10)
    assert float(model.kl().detach()) == pytest.approx(float(model_of(mlp()).kl().detach()), rel=0.02)


def test_errors_of_functions() -> None:
    other = bf.bayesify(mlp(), bf.MonteCarloVI(), num_data=10)
    with pytest.raises(TypeError, match="needs a model by bf.VarianceNetwork, not by method 'mc_vi'"):
        bf.zero_mean(other)
    with pytest.raises(ValueError, match="selects none of the random weights 0.weight, 3.weight"):
        bf.zero_mean(model_of(mlp()), bf.where.matching("conv"))
    uniform = model_of(mlp(), parameterization="zero_mean", noise="uniform")
    with pytest.raises(ValueError, match="has the zero_mean_uniform family, whose mean is zero already"):
        bf.zero_mean(uniform)
    with pytest.raises(ValueError, match="num_draws=0 must be a whole number of at least 1"):
        bf.inference_modes(model_of(mlp()), [], num_draws=0)
