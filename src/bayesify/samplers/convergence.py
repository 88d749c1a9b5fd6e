"""Do the chains agree, and how many independent draws are they worth?

Reference: Vehtari et al., "Rank-normalization, folding, and localization: an improved R-hat", Bayesian
Analysis 2021 (split R-hat and effective sample size, without the rank normalization).
"""

import torch
from torch import Tensor

BLOCKS = 20  # of one chain, at least
SIGMAS = 3.2  # below 2, where v of 20 independent draws of one quantity is once in 3,000 times


def autocorrelation(series: Tensor) -> Tensor:
    """ρ_t of every series, lags 0 … draws − 1: (..., draws) -> (..., draws)."""
    n = series.shape[-1]
    centred = series.double() - series.double().mean(-1, keepdim=True)
    spectrum = torch.fft.rfft(centred, n=2 * n)
    covariance = torch.fft.irfft(spectrum.abs().square(), n=2 * n)[..., :n]
    return covariance / covariance[..., :1].clamp_min(torch.finfo(torch.float64).tiny)


def rhat(draws: Tensor, pooled: bool = False) -> Tensor:
    """Split R-hat: (chains, draws, ...) -> (...). 1 where the halves of all chains agree; above 1.01 they do not yet.
    NaN where the draws are all the same.

    R̂ = √(var⁺ / W), var⁺ = (n − 1)/n W + B/n, over the 2 · chains halves of n draws.
    pooled: one number, of W and B added up over all quantities: those that vary most count most.
    """
    halves = _halves(draws)
    n = halves.shape[1]
    within = halves.var(1).mean(0)
    between = halves.mean(1).var(0)  # B / n
    if pooled:
        within, between = within.sum(), between.sum()
    return (((n - 1) / n * within + between) / within).sqrt()


def ess(draws: Tensor) -> Tensor:
    """Effective sample size of the mean: (chains, draws, ...) -> (...).

    τ = −1 + 2 Σ_k P_k with P_k = ρ_{2k} + ρ_{2k+1}, cut off where P_k < 0 and made monotone (Geyer); ESS = all / τ.
    NaN where the draws are all the same, or hold NaN.
    ρ_t = 1 − (W − mean_m s_m² ρ_{t,m}) / var⁺ over split chains m.
    """
    halves = _halves(draws).movedim(1, -1)  # (halves, ..., n)
    count, n = halves.shape[0], halves.shape[-1]
    variance = halves.var(-1)  # (halves, ...)
    within = variance.mean(0)
    total = (n - 1) / n * within + (halves.mean(-1).var(0) if count > 1 else 0)
    scaled = ((n - 1) / n * variance)[..., None] * autocorrelation(halves)
    rho = 1 - (within[..., None] - scaled.mean(0)) / total[..., None]  # (..., n)
    rho[..., 0] = 1
    pairs = rho[..., : 2 * (n // 2)].unflatten(-1, (-1, 2)).sum(-1)  # (..., n // 2)
    positive = (pairs > 0).cummin(-1).values
    monotone = torch.where(positive, pairs, 0).cummin(-1).values.clamp_min(0)
    time = -1 + 2 * monotone.sum(-1)
    everything = torch.tensor(float(count * n), dtype=torch.float64)
    size = everything / time.clamp_min(1 / everything.log10())
    return torch.where(total > 0, size, torch.nan)


def worth(draws: Tensor) -> float:
    """How many independent draws one chain is worth: (draws, ...) -> Var x / Var of the mean.

    The mean is one of k ≥ 20 blocks of draws. By the steps from block to block, v = Σ (Δx̄)² / Σ (x̄ − mean)² over
    blocks and quantities (von Neumann), they count as k v / (4 − v): v is 2 of independent ones, 2 (1 − φ) where
    ρ_t = φ^t, and τ = (1 + φ) / (1 − φ). What goes round fast averages out in a block and does not hide what is slow.
    Sums over many lags, as `ess` takes them, are too noisy for so few.
    """
    blocks, total = _blocks(draws)
    ratio = blocks.diff(dim=0).square().sum() / blocks.square().sum()
    return float(total * len(blocks) * ratio / (4 - ratio))


def least_worth(draws: Tensor) -> float:
    """What so many independent draws are seldom worth less than: `worth` at a v that is `SIGMAS` standard deviations
    below 2.

    Of k normal numbers v has the variance 4 (k − 2) / (k² − 1) (von Neumann), and of d quantities the d-th part of it,
    d = (tr C)² / tr C² by their covariance C. Twenty draws of one quantity may seem to be worth 4, of five 9.
    """
    blocks, total = _blocks(draws)
    k, gram = len(blocks), blocks @ blocks.T
    count = gram.trace().square() / gram.square().sum()
    ratio = 2 - SIGMAS * (4 * (k - 2) / (k * k - 1) / count).sqrt()
    return float(total * k * ratio / (4 - ratio))


def _blocks(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Means of k ≥ 20 blocks of draws, about their mean, (k, quantities), and Var x / Var x̄."""
    series = draws.double().flatten(1)
    size = max(1, len(series) // BLOCKS)
    series = series[len(series) % size :]
    blocks = series.unflatten(0, (-1, size)).mean(1)
    blocks = blocks - blocks.mean(0)
    return blocks, (series - series.mean(0)).square().mean(0).sum() / blocks.square().mean(0).sum()


def _halves(draws: Tensor) -> Tensor:
    """(chains, draws, ...) -> (2 · chains, draws // 2, ...); a middle draw is left out."""
    if draws.dim() < 2 or draws.shape[1] < 4:
        raise ValueError(
            f"draws of shape {tuple(draws.shape)} must be (chains, draws, ...) with at least 4 draws"
        )
    n = draws.shape[1] // 2
    return torch.cat([draws[:, :n], draws[:, draws.shape[1] - n :]]).double()
