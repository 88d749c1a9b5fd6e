"""Bad input gets an error that names the argument, the value and the remedy, and loses nothing."""

import pytest
import torch
from torch import nn

import bayesify as bf


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))


X, Y = torch.randn(6, 4), torch.tensor([0, 1, 2, 0, 1, 2])
GPU = pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"))


def test_an_unknown_method_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"method='mc_v' does not exist; choose from .*mc_vi.*mean 'mc_vi'"):
        bf.bayesify(mlp(), "mc_v")
    with pytest.raises(TypeError, match="must be a method object"):
        bf.bayesify(mlp(), 3)  # type: ignore[arg-type]


def test_an_unknown_family_prior_likelihood_or_estimator_lists_the_choices() -> None:
    with pytest.raises(ValueError, match=r"family='norml' .*normal"):
        bf.MonteCarloVI(family="norml")
    with pytest.raises(ValueError, match=r"prior='cauch'.*normal"):
        bf.MonteCarloVI(prior="cauch")
    with pytest.raises(ValueError, match=r"likelihood='gauss'.*normal"):
        bf.bayesify(mlp(), "mc_vi", likelihood="gauss")
    with pytest.raises(ValueError, match=r"kl='exakt'.*exact"):
        bf.MonteCarloVI(kl="exakt")
    with pytest.raises(ValueError, match=r"sampling='lokal'.*local"):
        bf.MonteCarloVI(sampling="lokal")
    with pytest.raises(ValueError, match="init_std=0 must be a number above 0, e.g. init_std=0.05"):
        bf.MonteCarloVI(init_std=0)
    with pytest.raises(ValueError, match=r"std=-1.* must be positive"):
        bf.prior("normal", std=-1)


def test_num_data_missing_or_wrong() -> None:
    model = bf.bayesify(mlp(), "mc_vi")
    with pytest.raises(ValueError, match="num_data is missing"):
        model.loss(X, Y)
    assert model(X).shape == (6, 3)  # predictions need none
    for wrong in (0, -5, 2.5, True):
        with pytest.raises(ValueError, match="num_data=.* must be a positive whole number"):
            bf.bayesify(mlp(), "mc_vi", num_data=wrong)  # type: ignore[arg-type]
    assert bf.bayesify(mlp(), bf.Point()).loss(X, Y).kl == 0
    with pytest.raises(ValueError, match="num_data is missing"):
        bf.bayesify(mlp(), bf.Point(prior="normal")).loss(X, Y)


def test_where_that_selects_nothing() -> None:
    with pytest.raises(
        ValueError,
        match=r"where=conv selects no parameter .* in linear layers; choose with where=bf.where.linear$",
    ):
        bf.bayesify(mlp(), bf.MonteCarloVI(where=bf.where.conv))
    frozen = mlp().requires_grad_(False)
    with pytest.raises(ValueError, match=r"frozen \(requires_grad=False\)"):
        bf.bayesify(frozen, bf.MonteCarloVI())
    with pytest.raises(ValueError, match="not a regular expression"):
        bf.where.matching("(")


@pytest.mark.parametrize("kl_weight", [-1.0, float("nan"), float("inf"), "1"])
def test_a_weight_of_the_kl_that_is_none(kl_weight: float) -> None:
    with pytest.raises(ValueError, match=r"kl_weight=.* must be a number of at least 0 or None"):
        bf.bayesify(mlp(), bf.MonteCarloVI(kl_weight=kl_weight))


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (torch.tensor([0, 1, 2, 3, 0, 1]), r"classes 0 to 3, but the network has 3 outputs"),
        (torch.tensor([0, 1, 2, -1, 0, 1]), r"classes -1 to 2"),
        (torch.tensor([0, 1]), r"shape \(2,\); for an output \(6, 3\) it must be \(6,\)"),
        (torch.tensor([0.0, 1, 2, 0, 1, 2]), r"dtype torch.float32; .* class indices"),
        (torch.eye(3, dtype=torch.long).repeat(2, 1), r"looks one-hot, so use target.argmax\(1\)"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", GPU])
def test_targets_of_the_wrong_range_shape_or_dtype(target: torch.Tensor, message: str, device: str) -> None:
    model = bf.bayesify(mlp().to(device), "mc_vi", num_data=10)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    with pytest.raises((ValueError, TypeError), match=message):
        model.loss(X.to(device), target.to(device))
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_regression_targets_are_never_broadcast() -> None:
    net = nn.Linear(4, 2)
    model = bf.bayesify(net, "mc_vi", likelihood=bf.likelihood("normal", std=1.0), num_data=10)
    with pytest.raises(ValueError, match=r"target has shape \(6,\), the network's output \(6, 2\)"):
        model.loss(X, torch.randn(6))
    one = bf.bayesify(nn.Linear(4, 1), "mc_vi", likelihood=bf.likelihood("normal", std=1.0), num_data=10)
    a = one.loss(X, torch.ones(6), generator=torch.Generator().manual_seed(0)).nll
    b = one.loss(X, torch.ones(6, 1), generator=torch.Generator().manual_seed(0)).nll
    assert a == b


def test_an_empty_batch() -> None:
    with pytest.raises(ValueError, match="the batch is empty"):
        bf.bayesify(mlp(), "mc_vi", num_data=10).loss(X[:0], Y[:0])


def test_a_numpy_array_is_no_input() -> None:
    """It could be iterated like a loader, row by row."""
    with pytest.raises(TypeError, match=r"x is a numpy array: give a tensor, torch\.from_numpy\(x\)"):
        bf.bayesify(mlp(), "point").predict(X.numpy())


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_nan_in_the_batch_a_parameter_or_the_network_is_named(device: str) -> None:
    model = bf.bayesify(mlp().to(device), "mc_vi", num_data=10)
    x, y = X.to(device), Y.to(device)
    with pytest.raises(ValueError, match=r"the batch holds NaN .*input 0"):
        model.loss(x * float("nan"), y)
    with torch.no_grad():
        model.get_parameter("posterior.q.2.bias.log_scale")[1] = float("nan")
    with pytest.raises(ValueError, match=r"parameter 'posterior.q.2.bias.log_scale' holds NaN"):
        model.loss(x, y)
    net = nn.Sequential(nn.Linear(4, 3), nn.Threshold(-1e9, 0.0)).to(device)
    overflow = bf.bayesify(net, "mc_vi", num_data=10)
    overflow.output = lambda out: out * float("inf")
    with pytest.raises(ValueError, match="the loss is not finite"):
        overflow.loss(x, y)


def test_a_network_on_two_devices() -> None:
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3, device="meta"))
    with pytest.raises(ValueError, match=r"several devices \(0.weight on cpu, 1.weight on meta\)"):
        bf.bayesify(net, "mc_vi")


def test_a_network_bayesified_twice() -> None:
    net = mlp()
    model = bf.bayesify(net, "mc_vi")
    for again in (net, model, nn.Sequential(net), net[0]):
        with pytest.raises(ValueError, match="already bayesified"):
            bf.bayesify(again, "mc_vi")
    del model
    assert bf.bayesify(net, "mc_vi") is not None  # nobody holds the first one any more


def test_what_cannot_be_a_network() -> None:
    with pytest.raises(TypeError, match=r"must be an nn.Module"):
        bf.bayesify(lambda x: x, "mc_vi")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"not initialised yet \(a lazy module\)"):
        bf.bayesify(nn.Sequential(nn.LazyLinear(3)), "mc_vi")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_torchscript_network_is_refused() -> None:
    with pytest.raises(TypeError, match="TorchScript"):
        bf.bayesify(torch.jit.trace(mlp(), X), "mc_vi")


def test_an_output_that_is_no_prediction() -> None:
    model = bf.bayesify(nn.LSTM(4, 3), "mc_vi", num_data=10)
    with pytest.raises(TypeError, match=r"returned tuple.*output=lambda out"):
        model.loss(X, Y)


def test_numbers_that_make_no_sense() -> None:
    model = bf.bayesify(mlp(), "mc_vi", num_data=10)
    with pytest.raises(
        ValueError, match="num_draws=0 must be a whole number of at least 1, e.g. num_draws=5"
    ):
        model.predict(X, num_draws=0)
    with pytest.raises(
        ValueError, match="num_draws=0 must be a whole number of at least 1, e.g. num_draws=5"
    ):
        model.loss(X, Y, num_draws=0)
    with pytest.raises(ValueError, match="num_members=0"):
        bf.DeepEnsemble(bf.Point(), 0)
    with pytest.raises(TypeError, match="must be a method object"):
        bf.DeepEnsemble(5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="num_steps=0"):
        bf.KLWarmup(model, 0)
    with pytest.raises(ValueError, match="loader is empty"):
        model.predict(torch.utils.data.DataLoader([]))
    with pytest.raises(ValueError, match="sample_weight has shape"):
        model.loss(X, Y, sample_weight=torch.ones(2))
    with pytest.raises(TypeError, match="like=.* must be a floating-point tensor"):
        bf.family("normal", like=torch.arange(3))


@pytest.mark.parametrize("name", bf.methods.METHODS)
def test_a_where_that_is_a_text(name: str) -> None:
    if name == "deep_ensemble":
        return  # has that of its members
    message = "where='fc' must be a choice, e.g. bf.where.matching\\('fc'\\); give other options by name"
    with pytest.raises(TypeError, match=message):
        bf.methods.METHODS[name](where="fc")
    with pytest.raises(TypeError, match="where=3 must be a choice, e.g. bf.where.all"):
        bf.methods.METHODS[name](where=3)
