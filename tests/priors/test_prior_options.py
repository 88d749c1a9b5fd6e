"""Options of priors: plain data that makes the prior again, checked with a remedy."""

import copy
import json
import math
import pickle
from typing import Any

import pytest
from prior_cases import OPTIONS

import bayesify as bf
from bayesify.priors import PRIORS


@pytest.mark.parametrize(("name", "options"), OPTIONS)
def test_options_are_plain_data_that_make_the_prior_again(name: str, options: dict[str, Any]) -> None:
    p = bf.prior(name, **options)
    data = json.loads(json.dumps(p.options))
    again = bf.prior(name, **data)
    assert again == p and hash(again) == hash(p) and repr(again) == repr(p)
    assert copy.deepcopy(p) == p and pickle.loads(pickle.dumps(p)) == p
    assert p != bf.prior("normal", mean=17.0)


def test_rules_are_checked() -> None:
    with pytest.raises(ValueError, match=r"rules: '\(' is no regular expression"):
        bf.prior("per_layer", rules={"(": "normal"})
    with pytest.raises(TypeError, match=r"prior 3 must be a name, bf.prior\(...\), or"):
        bf.prior("per_layer", rules={"bias": 3})
    with pytest.raises(ValueError, match=r"prior='gama' does not exist.*Did you mean 'gamma'"):
        bf.prior("per_layer", default="gama")


POSITIVE = {
    "std",
    "scale",
    "df",
    "rate",
    "concentration",
    "alpha",
    "tail",
    "std1",
    "std2",
    "gain",
    "bias_std",
}


@pytest.mark.parametrize("name", sorted(set(PRIORS) - {"per_layer"}))
def test_numbers_are_checked(name: str) -> None:
    for option in bf.prior(name).options:
        wrong = (0.0, -1.0, math.nan, math.inf) if option in POSITIVE else (math.nan, math.inf)
        for value in wrong:
            with pytest.raises(ValueError, match=rf"prior {option}=.* must be .*{option}=1.0"):
                bf.prior(name, **{option: value})
        for bad in ("3", None):
            with pytest.raises(TypeError, match=rf"prior {option}=.* must be a number"):
                bf.prior(name, **{option: bad})


def test_erlang_needs_a_whole_number_and_a_mixture_a_share() -> None:
    with pytest.raises(ValueError, match=r"concentration=2.5 must be a whole number: .* use the gamma prior"):
        bf.prior("erlang", concentration=2.5)
    for mix in (0.0, 1.0, 1.5):
        with pytest.raises(ValueError, match=r"mix=.* must lie between 0 and 1"):
            bf.prior("normal_mixture", mix=mix)


@pytest.mark.parametrize("name", PRIORS)
def test_unknown_options_are_refused_with_the_choices(name: str) -> None:
    with pytest.raises(
        TypeError, match=rf"colour='red': the {name} prior has no such option; (choose from|it has)"
    ):
        bf.prior(name, colour="red")
    with pytest.raises(AttributeError, match=rf"the {name} prior has no attribute 'colour'"):
        bf.prior(name).colour  # noqa: B018
