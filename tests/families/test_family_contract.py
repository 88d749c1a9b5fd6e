"""What every registered family must do: gradients, generators, compile, vmap, copies, files, options."""

import copy
import json
import math
from typing import Any

import pytest
import torch
from family_cases import ALL, CASES, IDS, LIKE, distribution, make
from torch import Tensor

from bayesify.families import FAMILIES, RandomTensor, family
from bayesify.laws.features import power

NAMES = list(FAMILIES)
every = pytest.mark.parametrize(("name", "options"), ALL, ids=IDS)


@every
def test_gradients_of_draws_and_densities_by_finite_differences(name: str, options: dict[str, Any]) -> None:
    module = make(name, options)
    noise = module.distribution().noise((2,), torch.Generator().manual_seed(0))
    value = module.distribution().transform(noise).detach()
    names, parameters = zip(*module.named_parameters(), strict=True)

    def outputs(*given: Tensor) -> tuple[Tensor, ...]:
        free = dict(zip(names, given, strict=True))
        buffers = dict(module.named_buffers())
        q = module.family(free.pop("centre"), **free, **buffers, **module.numbers)
        return q.transform(noise), q.log_prob(value), q.neg_entropy()

    assert torch.autograd.gradcheck(outputs, parameters, atol=1e-5, rtol=1e-4)


@every
def test_every_parameter_is_used(name: str, options: dict[str, Any]) -> None:
    module = make(name, options)
    (module.rsample().sum() + module.neg_entropy()).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())
    assert "centre" in dict(module.named_parameters())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (2, 1, 2)])
@pytest.mark.parametrize("name", NAMES)
def test_shapes_and_dtypes(name: str, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    like = torch.randn(shape, dtype=dtype)
    q = family(name, like).distribution()
    event = () if not q.independent else shape
    for n, lead in ((None, ()), (5, (5,))):
        w = q.rsample(n)
        assert w.shape == (*lead, *shape)
        assert q.log_prob(w).shape == (*lead, *event)
        assert w.dtype == q.log_prob(w).dtype == q.neg_entropy().dtype == dtype
    assert q.mean.shape == q.variance.shape == q.shape == shape
    assert q.neg_entropy().shape == ()
    assert q.mean.dtype == q.variance.dtype == dtype


@every
def test_a_generator_decides_the_draws_and_leaves_the_global_state(
    name: str, options: dict[str, Any]
) -> None:
    q = distribution(name, options)
    state = torch.get_rng_state()
    first = q.rsample(3, torch.Generator().manual_seed(5))
    assert torch.equal(first, q.rsample(3, torch.Generator().manual_seed(5)))
    assert not torch.equal(first, q.rsample(3, torch.Generator().manual_seed(6)))
    sums = q.sums([power(1)], 10, torch.Generator().manual_seed(5))
    if sums is not None:
        assert torch.equal(sums[0], q.sums([power(1)], 10, torch.Generator().manual_seed(5))[0])
    assert torch.equal(state, torch.get_rng_state())


@every
def test_signs_are_those_of_the_start(name: str, options: dict[str, Any]) -> None:
    q = distribution(name, options)
    w = q.rsample(100, torch.Generator().manual_seed(0))
    if q.support == "real":
        assert q.sign is None
        assert (w > 0).any() and (w < 0).any()
        return
    assert torch.equal(q.sign, LIKE.sign())
    assert torch.equal(w.sign(), LIKE.sign().expand_as(w))
    assert (w.abs() > (1 if q.support == "above_one" else 0)).all()
    assert (q.log_prob(-w) == -math.inf).all()


@pytest.mark.parametrize("name", NAMES)
def test_the_start_is_near_the_given_weights(name: str) -> None:
    """Up to the floor of 1 % of the root mean square, and where the family allows it at all."""
    q = distribution(name, {})
    floor = 0.01 * LIKE.square().mean().sqrt()
    if name == "zero_mean_error":
        assert (q.mean == 0).all()
        torch.testing.assert_close(q.variance, LIKE.square() + floor.square())
    elif name == "exp_gamma":
        above = LIKE.abs() > 1.2
        torch.testing.assert_close(q.mean[above], LIKE[above], atol=0.03, rtol=0.02)
        assert (q.mean.abs()[~above] < 1.2).all()
    else:
        assert ((q.mean - LIKE).abs() <= floor + 2e-3 * LIKE.abs()).all()


@pytest.mark.parametrize(
    "name", sorted(set(NAMES) - {"exponential", "std_wald", "rayleigh", "zero_mean_error", "exp_gamma"})
)
@pytest.mark.parametrize("init_std", [0.05, 0.3])
def test_init_std_is_the_spread_of_the_start(name: str, init_std: float) -> None:
    """Of families on the line relative to the tensor's root mean square, of magnitudes relative to the weight."""
    q = distribution(name, {"init_std": init_std})
    std = q.variance.sqrt()
    if name == "horseshoe":
        torch.testing.assert_close(q.scale, init_std * LIKE.square().mean().sqrt().expand_as(q.scale))
    elif q.support == "real":
        torch.testing.assert_close(
            std, init_std * LIKE.square().mean().sqrt().expand_as(std), rtol=1e-6, atol=0
        )
    else:
        expected = torch.full_like(std, init_std)
        torch.testing.assert_close(
            std / q.mean.abs(), expected, rtol=0.03 if name == "erlang" else 1e-6, atol=0
        )


@pytest.mark.parametrize("name", NAMES)
def test_all_zero_weights_start_finite(name: str) -> None:
    module = family(name, torch.zeros(3))
    w = module.rsample()
    (w.sum() + module.neg_entropy()).backward()
    assert w.isfinite().all() and module.log_prob(w.detach()).isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.parametrize("name", NAMES)
def test_the_whole_traces_in_one_graph(name: str) -> None:
    """torch.compile(fullgraph=True); and again with another concentration, a number that may become symbolic."""
    torch.compiler.reset()

    @torch.compile(backend="aot_eager", fullgraph=True)
    def run(q: RandomTensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        w = q.rsample(2)
        sums = q.distribution().sums([power(1)], 10)
        return w, q.log_prob(w), q.neg_entropy(), sums[0] if sums else q.mean

    for options in CASES[name][:2]:
        module = make(name, options, LIKE.float())
        w, density, neg_entropy, _ = run(module)
        (w.sum() + neg_entropy).backward()
        torch.testing.assert_close(density, module.log_prob(w), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(neg_entropy, module.neg_entropy())
        assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@every
def test_vmap_draws_differently_for_every_example(name: str, options: dict[str, Any]) -> None:
    q = distribution(name, options, LIKE.float())

    def run(x: Tensor) -> tuple[Tensor, Tensor]:
        w = q.rsample()
        return w, q.log_prob(w) + x

    w, density = torch.func.vmap(run, randomness="different")(torch.zeros(4))
    assert w.shape == (4, 2, 3)
    assert not torch.equal(w[0], w[1])
    torch.testing.assert_close(density, q.log_prob(w))


@every
def test_copies_and_saved_states_are_the_same_distribution(name: str, options: dict[str, Any]) -> None:
    module = make(name, options)
    w = module.rsample(4)
    torch.testing.assert_close(copy.deepcopy(module).log_prob(w), module.log_prob(w))
    other = make(name, options, like=torch.full_like(LIKE, 0.3))
    other.load_state_dict(module.state_dict())
    torch.testing.assert_close(other.log_prob(w), module.log_prob(w))
    json.dumps(module.numbers)  # what is not in the state dict comes from plain options


@pytest.mark.parametrize("name", NAMES)
def test_many_tensors_are_drawn_as_one_by_one(name: str) -> None:
    qs = [distribution(name, {}, like) for like in (LIKE, LIKE[0], LIKE[1] * 2)]
    together = FAMILIES[name].rsample_all(qs, torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(0)
    for q, w in zip(qs, together, strict=True):
        torch.testing.assert_close(w, q.rsample(generator=generator))


def test_a_random_tensor_shows_the_members_of_its_distribution() -> None:
    q = family("gamma", torch.tensor([2.0]), concentration=4.0)
    assert q.concentration == 4.0
    torch.testing.assert_close(q.scale * 4, q.mean)
    torch.testing.assert_close(q.rate, 1 / q.scale)
    assert family("normal", torch.ones(2)).loc.tolist() == [1, 1]
    with pytest.raises(AttributeError, match="colour"):
        q.colour  # noqa: B018


def test_a_random_tensor_of_a_network_forwards_nothing() -> None:
    q = RandomTensor(FAMILIES["normal"], torch.ones(2), own_centre=False)
    assert not hasattr(q, "scale")
    with pytest.raises(ValueError, match=r"use .at\(centre\)"):
        q.distribution()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_init_std_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=r"init_std=.* must be positive and finite, e.g. init_std="):
        family(name, torch.ones(1), init_std=value)


SHAPED = [
    (n, "concentration") for n in ("weibull", "erlang", "gamma", "inverse_gamma", "log_gamma", "exp_gamma")
]


@pytest.mark.parametrize(("name", "option"), [*SHAPED, ("error", "tail"), ("zero_mean_error", "tail")])
def test_shapes_must_be_positive_numbers(name: str, option: str) -> None:
    for value in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=rf"{option}=.* must be positive and finite, e.g. {option}="):
            family(name, torch.ones(1), **{option: value})
    for value in ("3", True):
        with pytest.raises(TypeError, match=rf"{option}=.* must be a number"):
            family(name, torch.ones(1), **{option: value})


def test_erlang_needs_a_whole_number() -> None:
    with pytest.raises(ValueError, match=r"concentration=2.5 must be a whole number .* use the gamma family"):
        family("erlang", torch.ones(1), concentration=2.5)


@pytest.mark.parametrize("name", NAMES)
def test_unknown_options_are_refused_with_the_choices(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"colour='red': the {name} family has no such option; choose from .*init_std"
    ):
        family(name, torch.ones(1), colour="red")
