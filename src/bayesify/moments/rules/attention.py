"""Attention: scaled_dot_product_attention and torch's multi-head attention, written in operations that have rules."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bayesify import torch_internals as internals
from bayesify.moments.missing import not_covered
from bayesify.moments.registry import rule
from bayesify.moments.rules.arithmetic import times
from bayesify.moments.rules.product import product, weighted_mean
from bayesify.moments.rules.shape import moved
from bayesify.moments.rules.softmax import softmax_var
from bayesify.moments.values import Moments, Simplex, parts


@rule(F.scaled_dot_product_attention, half=True)
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Moments:
    """softmax(c q·k + mask) v, c = 1/√d. Scores have Var = c² Σ(σ_q²σ_k² + μ_q²σ_k² + μ_k²σ_q²); then `weighted_mean`.

    q, k and v are taken as independent of each other, although in self-attention all come from the same x.
    """
    q_mean = parts(query)[0]
    if enable_gqa:
        groups = q_mean.shape[-3] // parts(key)[0].shape[-3]
        key, value = (moved(torch.repeat_interleave, x, groups, -3) for x in (key, value))
    scale = 1 / math.sqrt(q_mean.shape[-1]) if scale is None else scale
    scores, score_var = _scores(query, key, scale)
    bias = _mask(attn_mask, is_causal, scores)
    if isinstance(bias, Moments):  # a random relative position bias
        scores = scores + bias.mean
        score_var = bias.var if score_var is None else score_var + bias.var
    elif bias is not None:
        scores = scores + bias
    a = scores.softmax(-1) if bias is None else _safe_softmax(scores)
    if score_var is None:
        score_var = torch.zeros_like(a)
        return weighted_mean(Simplex(a, score_var, score_var, dropout_p), value)
    return weighted_mean(Simplex(a, softmax_var(a, score_var), score_var, dropout_p), value)


def _scores(query: Any, key: Any, scale: float) -> tuple[Tensor, Tensor | None]:
    (q, q_var), (k, k_var) = parts(query), parts(key)
    if q_var is None and k_var is None:
        return scale * (q @ k.mT), None
    return product(torch.matmul, times(query, scale), moved(torch.transpose, key, -2, -1))


def _mask(mask: Any, is_causal: bool, scores: Tensor) -> Any:
    """The mask as numbers to add: 0 where a score counts, −∞ where it does not."""
    if is_causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if isinstance(mask, Tensor) and mask.dtype == torch.bool:
        return _additive(~mask, scores.dtype)
    return mask


def _safe_softmax(scores: Tensor) -> Tensor:
    """Rows in which every score is masked become 0, as in torch."""
    empty = (scores == -math.inf).all(-1, keepdim=True)
    return scores.masked_fill(empty, 0.0).softmax(-1).masked_fill(empty, 0.0)


@rule(F.multi_head_attention_forward, composite=True)
def multi_head_attention(
    query: Any,
    key: Any,
    value: Any,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Any,
    in_proj_bias: Any,
    bias_k: Any,
    bias_v: Any,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Any,
    out_proj_bias: Any,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Any = None,
    k_proj_weight: Any = None,
    v_proj_weight: Any = None,
    static_k: Any = None,
    static_v: Any = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Any:
    """Projections, attention per head, output projection; inputs are (tokens, batch, features) or without batch."""
    if any(x is not None for x in (bias_k, bias_v, static_k, static_v)) or add_zero_attn:
        case = "add_bias_kv, add_zero_attn or static keys"
        raise NotImplementedError(not_covered(F.multi_head_attention_forward, case))
    single = query.dim() == 2
    if single:
        query, key, value = (x.unsqueeze(1) for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    weights = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        weights = in_proj_weight.chunk(3)
    biases = (None,) * 3 if in_proj_bias is None else in_proj_bias.chunk(3)
    q, k, v = (
        _heads(F.linear(x, w, b), num_heads)
        for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )
    mask = _merged_mask(attn_mask, key_padding_mask, num_heads, q)
    rate = dropout_p if training else 0.0
    scaled = q * (1 / math.sqrt(q.shape[-1]))
    scores = torch.matmul(scaled, k.transpose(-2, -1))  # (batch, heads, tokens, keys)
    attention = torch.softmax(scores if mask is None else scores + mask, -1)
    output = torch.matmul(F.dropout(attention, rate), v)
    output = output.permute(2, 0, 1, 3).flatten(2)  # (tokens, batch, features)
    output = F.linear(output, out_proj_weight, out_proj_bias)
    shown = None
    if need_weights:
        shown = attention.mean(1) if average_attn_weights else attention
        shown = shown[0] if single else shown
    return output[:, 0] if single else output, shown


def _heads(x: Any, num_heads: int) -> Any:
    """(tokens, batch, features) -> (batch, heads, tokens, features per head)."""
    return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)


def _merged_mask(mask: Tensor | None, padding: Tensor | None, heads: int, like: Any) -> Tensor | None:
    """Both masks as numbers to add, (batch or 1, heads or 1, tokens or 1, keys); True means leave out."""
    merged: Any = None
    if mask is not None:
        mask = mask.unflatten(0, (-1, heads)) if mask.dim() == 3 else mask
        merged = _additive(mask, like.dtype)
    if padding is not None:
        padding = _additive(padding, like.dtype)[:, None, None]
        merged = padding if merged is None else merged + padding
    return merged


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


@rule(internals.nested_tensor_from_mask_left_aligned)
def left_aligned(x: Any, mask: Tensor) -> bool:
    """Asked by nn.TransformerEncoder in eval mode before it takes a fast path of its own, which has no rules: no."""
    return False
