"""Fourier transforms and complex activations: every real and imaginary part by the Jacobian."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from propagation import by_jacobian, propagate, random_moments
from torch import Tensor

CONSTANT = torch.complex(torch.linspace(-1, 1, 5).double(), torch.linspace(2, 0.5, 5).double())


def parts(z: Tensor) -> Tensor:
    return torch.view_as_real(z) if z.is_complex() else z


def as_complex(x: Tensor) -> Tensor:
    """Both parts random: (2, n, m) -> (n, m)."""
    return torch.complex(x[0], x[1])


TRANSFORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "rfft": torch.fft.rfft,
    "rfft, odd, ortho": lambda x: torch.fft.rfft(x[..., :5], norm="ortho"),
    "rfft, padded": lambda x: torch.fft.rfft(x, n=9, dim=1),
    "rfft, cut": lambda x: torch.fft.rfft(x, 4, norm="forward"),
    "rfft2": torch.fft.rfft2,
    "rfftn": torch.fft.rfftn,
    "fft": torch.fft.fft,
    "fft of complex": lambda x: torch.fft.fft(as_complex(x), dim=0),
    "ifft of complex": lambda x: torch.fft.ifft(as_complex(x), norm="ortho"),
    "fft2 of complex": lambda x: torch.fft.fft2(as_complex(x)),
    "ifftn of complex": lambda x: torch.fft.ifftn(as_complex(x), s=(4, 7)),
    "irfft": lambda x: torch.fft.irfft(as_complex(x)),
    "irfft, odd": lambda x: torch.fft.irfft(as_complex(x), n=7, norm="forward"),
    "irfft, cut": lambda x: torch.fft.irfft(as_complex(x), 5),
    "irfft2": lambda x: torch.fft.irfft2(as_complex(x), norm="ortho"),
    "irfftn, odd": lambda x: torch.fft.irfftn(as_complex(x), s=(3, 9)),
    "fftshift": lambda x: torch.fft.fftshift(as_complex(x)),
}
COMPLEX: dict[str, Callable[[Tensor], Tensor]] = {
    "real, imag, conj": lambda x: as_complex(x).conj().imag - as_complex(x[:, 1:]).real.sum(0),
    "times a constant": lambda x: as_complex(x)[..., :5] * CONSTANT,
    "real times a constant": lambda x: x[..., :5] * CONSTANT + CONSTANT.sum(),
    "matmul with a constant": lambda x: as_complex(x)[..., :5] @ torch.stack([CONSTANT, CONSTANT.flip(0)], 1),
    "abs": lambda x: as_complex(x).abs() / 3,
    "mean, padded": lambda x: torch.nn.functional.pad(as_complex(x), (0, 2)).mean(0),
    "H": lambda x: as_complex(x).H.resolve_conj(),
    "view_as_complex": lambda x: torch.view_as_complex(x.permute(1, 2, 0).contiguous()),
}


@pytest.mark.parametrize("name", [*TRANSFORMS, *COMPLEX])
def test_every_part_has_the_variance_of_the_linear_map(name: str) -> None:
    torch.manual_seed(0)
    function = {**TRANSFORMS, **COMPLEX}[name]
    x = random_moments(2, 3, 6, var=1e-6)
    result = propagate(lambda x: parts(function(x)), x)
    expected = by_jacobian(lambda x: parts(function(x)), x)
    torch.testing.assert_close(result.mean, expected.mean)
    torch.testing.assert_close(result.var, expected.var, rtol=1e-4, atol=1e-13)


@pytest.mark.parametrize("operation", ["mul", "einsum", "matmul"])
def test_products_of_random_complex_numbers(operation: str) -> None:
    """Exactly, for independent parts: Σ over all pairs of parts of Var x (E y)² + ((E x)² + Var x) Var y."""
    torch.manual_seed(0)
    x, y = random_moments(2, 3, 4), random_moments(2, 4, 3)

    def function(x: Any, y: Any) -> Any:
        a, b = as_complex(x), as_complex(y)
        if operation == "mul":
            return torch.view_as_real(a * b.t())
        return torch.view_as_real(a @ b if operation == "matmul" else torch.einsum("ij,jk->ik", a, b))

    result = propagate(function, x, y)
    num = 400_000
    draws = [m.mean + m.var.sqrt() * torch.randn(num, *m.mean.shape).double() for m in (x, y)]
    a, b = (torch.complex(d[:, 0], d[:, 1]) for d in draws)
    drawn = torch.view_as_real(a * b.mT if operation == "mul" else a @ b)
    torch.testing.assert_close(result.mean, function(x.mean, y.mean))
    torch.testing.assert_close(result.var, drawn.var(0), rtol=0.03, atol=0)


def test_what_has_no_rule_for_complex_numbers_is_named() -> None:
    x = random_moments(2, 3, 6)
    with pytest.raises(NotImplementedError, match="torch.exp.* with complex numbers, used in"):
        propagate(lambda x: torch.exp(torch.fft.fft(x)), x)
    with pytest.raises(NotImplementedError, match="torch.div' with a complex divisor"):
        propagate(lambda x: x[..., :5] / CONSTANT, x)
