"""Fused random kernels have the law of the plain ones; with given noise, the same numbers.

Without a GPU the kernel itself runs in Triton's interpreter: TRITON_INTERPRET=1, where Triton is installed.
"""

import importlib.util
import math
import os
from typing import Any

import pytest
import torch
from scipy import stats

from bayesify.kernels import LAWS, noise_sums, normal_draws
from bayesify.kernels.sums import BLOCK, block_norms, draw_noise, noise_of, radial_norms, random_numbers

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and importlib.util.find_spec("triton") is not None
FAILURE_RATE = 1e-6


def ks_distance(a: torch.Tensor, b: torch.Tensor) -> tuple[float, float]:
    """Two-sample Kolmogorov–Smirnov distance, and the one exceeded with FAILURE_RATE (Smirnov's bound)."""
    bound = math.sqrt(-math.log(FAILURE_RATE / 2) / 2) * math.sqrt(1 / a.numel() + 1 / b.numel())
    result = stats.ks_2samp(a.flatten().double().cpu().numpy(), b.flatten().double().cpu().numpy())
    return float(result.statistic), bound


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("law", [law for law in LAWS if law != "radial"])
@pytest.mark.parametrize("n", [1, 3, 20])
def test_the_sums_have_the_law_of_stored_draws(law: str, n: int, device: str) -> None:
    """20,000 entries are 20,000 independent sums."""
    generator = torch.Generator(device).manual_seed(n)
    like = torch.empty(20_000, device=device)
    noise = draw_noise(law, (n, 20_000), like, generator)
    for ours, plain in zip(
        noise_sums(law, like, n, generator), (noise.sum(0), noise.square().sum(0)), strict=True
    ):
        distance, bound = ks_distance(ours, plain)
        assert distance < bound


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("entries", [7, BLOCK + 3])
def test_radial_sums_have_the_law_of_stored_draws(entries: int, device: str) -> None:
    """600 repetitions; of each the first and the last entry, and the whole tensor's Σ ‖ε‖² = Σ ρ² ~ χ²_n."""
    generator = torch.Generator(device).manual_seed(entries)
    like = torch.empty(entries, device=device)
    n = 5
    ours = [noise_sums("radial", like, n, generator) for _ in range(600)]
    noise = draw_noise("radial", (600 * n, entries), like, generator).view(600, n, entries)
    first, second = (torch.stack(part) for part in zip(*ours, strict=True))  # (repetitions, entries)
    for column in (0, -1):
        for sums, plain in ((first, noise.sum(1)), (second, noise.square().sum(1))):
            distance, bound = ks_distance(sums[:, column], plain[:, column])
            assert distance < bound
    test = stats.kstest(second.sum(1).double().cpu().numpy(), stats.chi2(n).cdf)
    assert test.pvalue > FAILURE_RATE


def assert_equal_sums(found: tuple[torch.Tensor, torch.Tensor], noise: torch.Tensor) -> None:
    """To 1e-6 of the numbers that are added up."""
    for sums, part in zip(found, (noise, noise.square()), strict=True):
        expected, size = part.double().sum(0).cpu(), part.double().abs().sum(0).cpu()
        assert ((sums.cpu() - expected).abs() <= 1e-6 * size + 1e-12).all()


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("shape", "n"), [((7,), 1), ((BLOCK + 3,), 6), ((3, 5), 37), ((), 3)])
@pytest.mark.parametrize("device", DEVICES)
def test_given_noise_is_summed_up(law: str, shape: tuple[int, ...], n: int, device: str) -> None:
    """On a GPU by the kernel: the same numbers as the plain form on a CPU makes of them."""
    numbers = random_numbers(law, (n, *shape), torch.empty(shape), torch.Generator().manual_seed(n))
    found = noise_sums(law, torch.empty(shape, device=device), n, noise=numbers.to(device))
    assert_equal_sums(found, noise_of(law, numbers))


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loop bounds are arrays of one number there, which numpy 2.4 no longer turns into an int by itself."""
    from triton.runtime import interpreter

    plain = interpreter._patch_lang_tensor

    def patched(tensor: Any, scope: Any) -> None:
        plain(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patched)


@pytest.mark.usefixtures("interpreter")
@pytest.mark.skipif(not INTERPRETED, reason="needs TRITON_INTERPRET=1 and Triton")
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("shape", "n"), [((7,), 1), ((BLOCK + 3,), 6), ((3, 5), 37)])
def test_the_interpreted_kernel_makes_the_plain_form_s_numbers(
    law: str, shape: tuple[int, ...], n: int
) -> None:
    from bayesify.kernels.triton_sums import launch

    like, generator = torch.empty(shape), torch.Generator().manual_seed(n)
    numbers = random_numbers(law, (n, *shape), like, generator)
    norms = block_norms(numbers, BLOCK) if law == "radial" else None
    found = launch(law, like, n, torch.tensor(0), norms, BLOCK, numbers)
    assert_equal_sums(found, noise_of(law, numbers))
    for ours, plain in zip(found, noise_sums(law, like, n, noise=numbers), strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("n", [1, 4, 7])
def test_draws_are_normal(n: int, device: str) -> None:
    loc, log_scale = torch.full((3000,), 2.0, device=device), torch.full((3000,), -1.0, device=device)
    draws = normal_draws(loc, log_scale, n, torch.Generator(device).manual_seed(n))
    assert draws.shape == (n, 3000)
    z = ((draws - 2.0) / math.exp(-1)).double().cpu()
    assert stats.kstest(z.flatten().numpy(), stats.norm.cdf).pvalue > FAILURE_RATE
    if n > 1:  # no two draws share numbers: |correlation| of 3,000 pairs stays under its 1e-6 quantile
        corr = torch.corrcoef(z) - torch.eye(n, dtype=torch.float64)
        assert corr.abs().max() < stats.norm.isf(FAILURE_RATE / 2 / n**2) / math.sqrt(3000)


@pytest.mark.parametrize("device", DEVICES)
def test_a_generator_makes_the_kernels_reproducible(device: str) -> None:
    like = torch.empty(BLOCK + 5, device=device)
    for law in LAWS:
        a, b = (noise_sums(law, like, 6, torch.Generator(device).manual_seed(3)) for _ in range(2))
        assert torch.equal(a[0], b[0]) and torch.equal(a[1], b[1])
        assert not torch.equal(a[0], noise_sums(law, like, 6, torch.Generator(device).manual_seed(4))[0])


def test_block_norms_share_out_one_half_normal_radius() -> None:
    """Σ_b norm_b² = ρ², so over 4,000 draws it is χ² with one degree of freedom."""
    norms = radial_norms(torch.empty(5 * BLOCK + 1), 4000, BLOCK, torch.Generator().manual_seed(0))
    test = stats.kstest(norms.square().sum(1).numpy(), stats.chi2(1).cdf)
    assert norms.shape == (4000, 6) and test.pvalue > FAILURE_RATE


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("entries", [7, BLOCK, 3 * BLOCK + 11])
def test_a_radial_kernel_with_given_block_norms_keeps_them(entries: int) -> None:
    """With one draw the kernel's ε has exactly the block norms it was given."""
    like = torch.empty(entries, device="cuda")
    norms = radial_norms(like, 1, BLOCK)
    seed = torch.tensor(5, device="cuda")
    first, second = torch.ops.bayesify.noise_sums(like, 1, "radial", seed, norms)
    torch.testing.assert_close(first.square(), second, rtol=1e-5, atol=1e-12)
    padded = torch.nn.functional.pad(second, (0, -entries % BLOCK)).view(-1, BLOCK).sum(1)
    torch.testing.assert_close(padded, norms[0].square(), rtol=1e-5, atol=0)


def test_the_kernels_trace() -> None:
    def both(like: torch.Tensor) -> torch.Tensor:
        return noise_sums("radial", like, 3)[0].sum() + normal_draws(like, like, 2).sum()

    compiled = torch.compile(both, fullgraph=True, backend="aot_eager")
    assert compiled(torch.zeros(4)).isfinite()
