"""What autograd keeps: constant in the number of draws for every estimator but `direct`."""

import pytest
import torch
from torch import nn

import bayesify as bf
from bayesify.divergences import kl_of

ENTRIES = 50


@pytest.mark.parametrize(
    ("estimator", "family", "prior"),
    [
        ("exact", "normal", "normal"),
        ("repar", "normal", "normal"),
        ("repar", "radial", "normal"),
        ("repar", "gamma", "gamma"),
        ("repar", "gamma", "log_normal"),
        ("stream", "normal", "logistic"),
        ("stream", "gamma", "gamma"),
        ("taylor", "normal", "logistic"),
    ],
)
def test_the_graph_does_not_grow_with_the_draws(estimator: str, family: str, prior: str) -> None:
    q, p = bf.family(family, like=torch.rand(ENTRIES)), bf.prior(prior)
    sizes = [bf.graph_size(lambda m=m: bf.kl(q, p, estimator, num_draws=m)) for m in (2, 10, 1000)]
    assert sizes[0] == sizes[1] == sizes[2] <= 100 * ENTRIES


def test_the_graph_of_direct_grows_with_the_draws() -> None:
    q, p = bf.family("normal", like=torch.randn(ENTRIES)), bf.prior("normal")
    one, ten, hundred = (bf.graph_size(lambda m=m: bf.kl(q, p, "direct", num_draws=m)) for m in (1, 10, 100))
    assert hundred - ten == 10 * (ten - one) > 90 * ENTRIES


def test_many_tensors_at_once_keep_two_numbers_a_weight_for_any_number_of_draws() -> None:
    qs = [bf.family("normal", like=torch.randn(n)).distribution() for n in (ENTRIES, 7)]
    sizes = {
        bf.graph_size(lambda m=m: kl_of(qs[0], bf.prior("normal"), "repar", m)(qs)) for m in (1, 10, 1000)
    }
    assert sizes == {2 * (ENTRIES + 7)}


def test_what_counts() -> None:
    x = nn.Parameter(torch.ones(6))
    assert bf.graph_size(lambda: x.exp().sum()) == 6  # the result of exp
    assert bf.graph_size(lambda: (x * x).sum()) == 0  # parameters do not count
    assert bf.graph_size(lambda: x.view(2, 3).square().sum()) == 0  # nor do views of them
    noise = torch.ones(6)
    assert bf.graph_size(lambda: (x * noise + x * noise).sum()) == 6  # a storage counts once
    assert (
        bf.graph_size(lambda: (x * torch.ones(4, 6)[1]).sum()) == 24
    )  # a view keeps the whole storage alive
    assert bf.graph_size(lambda: x.detach().exp().sum()) == 0


def test_what_backward_frees_counts_no_longer() -> None:
    x = nn.Parameter(torch.ones(6))

    def steps() -> None:
        for _ in range(3):
            x.exp().sum().backward()

    assert bf.graph_size(steps) == 6
