"""Averaging a network's output over draws."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice, repeat
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor, nn

from bayesify import torch_internals as internals
from bayesify.batches import inputs_for
from bayesify.checks import checked
from bayesify.moments import Moments, certain, holds, replace
from bayesify.moments.sweep import finished
from bayesify.moments.values import mean_of
from bayesify.names import check_choice
from bayesify.passes.stacked import BatchedRemoved, Stacked
from bayesify.posteriors import Call
from bayesify.predict.accumulation import Accumulator, one_more
from bayesify.predict.compiled import compiled, copied
from bayesify.predict.nonfinite import ACTIONS, answered, counted_from
from bayesify.predict.output_draws import draws_of
from bayesify.predict.predictive import Predictive, concatenate
from bayesify.predict.views import Augment, Views, check_augment, stacked
from bayesify.torch_internals import pytree
from bayesify.weights import as_call
from bayesify.weights.calls import is_sharded_unit
from bayesify.weights.prefix import Prefix

MODES = ("deterministic", "stochastic", "ensemble")  # what `bf.inference_modes` compares
LINEARISED = "linearised"
MODES_OF_PREDICT = (*MODES, LINEARISED)
VMAP_NUMBERS = 2**28  # at most this many weights of stacked draws at once
STORED_NUMBERS = 2**21  # the same of draws that lie on disk, which shall not fill the memory
SHARED_NUMBERS = 2**23  # on an accelerator, inputs · draws at once where the draws share most weights
JOINED_NUMBERS = 2**20  # outputs are collected up to this many numbers before their statistics are taken


@checked
def predict(
    model: Any,
    x: Any,
    num_draws: Any,  # checked by `model.predict`
    keep_samples: bool = False,
    generator: Generator | None = None,
    batched: bool | None = None,
    compile: bool = False,
    on_nonfinite: str = "raise",
    augment: Augment | None = None,
) -> Predictive:
    """`model.predict` on one input or a loader; the model is in eval mode already.

    An input with variance (`bf.Moments`) takes two passes: one without that variance, to tell what it adds.

    batched: run several draws at once by vmap (True), one after the other (False), or choose (None).
    compile: compile draw and network together, on a GPU as a CUDA graph; the first call takes a minute,
             later ones with inputs of the same shape are several times faster.
    on_nonfinite, augment: see `model.predict`
    """
    check_augment(augment)
    if compile and generator is not None:
        raise ValueError("compile=True cannot take a generator: seed with torch.manual_seed instead")
    options = (num_draws, keep_samples, generator, batched, compile, augment)
    return over_batches(model, x, lambda inputs: _predict_one(model, inputs, *options), on_nonfinite)


def _predict_one(
    model: Any,
    x: Any,
    num_draws: int,
    keep_samples: bool,
    generator: Generator | None,
    batched: bool | None,
    compile: bool,
    augment: Augment | None,
) -> Predictive:
    if not holds(x, Moments):
        return _predict(model, x, num_draws, keep_samples, generator, batched, compile, augment)
    if augment is not None:
        raise ValueError("augment= takes inputs without a variance: x holds bf.Moments, which have no views")
    with _repeated(generator, next(model.parameters()).device):  # both passes get the same random numbers
        exact = _predict(model, replace(x, Moments, mean_of), num_draws, False, generator, batched, compile)
    whole = _predict(model, x, num_draws, keep_samples, generator, batched, compile)
    return whole.beside(exact)


def _predict(
    model: Any,
    x: Any,
    num_draws: int,
    keep_samples: bool,
    generator: Generator | None,
    batched: bool | None,
    compile: bool,
    augment: Augment | None = None,
) -> Predictive:
    call = as_call(x, generator=generator)
    views = None if augment is None else Views(augment, x, generator)
    matched = model.posterior.sampling == "moments" and views is None
    accumulator = Accumulator(model.likelihood, keep_samples, matched)
    members, each = shares(model, num_draws, augment)
    for member in range(members):
        if compile and views is None and _is_one_graph(model, call, each, batched):
            result = compiled(model, member, each, keep_samples)(call.args, dict(call.kwargs), None)
            accumulator.merge(pytree.tree_map(copied, result))
            continue
        for chunk in joined(outputs(model, call, member, each, batched, compile, views), each):
            accumulator.add(chunk)
    return accumulator.result()


def is_loader(x: Any) -> bool:
    """Batches to predict one after the other, not one input."""
    one_input = isinstance(x, Tensor | tuple | list | dict | str | bytes | np.ndarray) or hasattr(x, "keys")
    return isinstance(x, Iterable) and not one_input


def over_batches(model: Any, x: Any, one: Callable[[Any], Predictive], on_nonfinite: str) -> Predictive:
    """The prediction that `one` makes for an input; for every batch of a loader, joined on the CPU."""
    check_choice(ACTIONS, on_nonfinite, "on_nonfinite")
    if not is_loader(x):
        return answered(x, one, on_nonfinite)
    parts: list[Predictive] = []
    first = 0
    for batch in x:
        with counted_from(first):
            parts.append(answered(inputs_for(model, batch), one, on_nonfinite).to("cpu"))
        first += len(parts[-1])
    if not parts:
        raise ValueError("the loader is empty: nothing to predict")
    return concatenate(parts)


@contextmanager
def _repeated(generator: Generator | None, device: torch.device) -> Iterator[None]:
    """Afterwards the random state is what it was before."""
    if generator is None:
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            yield
        return
    state = generator.get_state()
    yield
    generator.set_state(state)


def shares(model: Any, num_draws: int, augment: Augment | None = None) -> tuple[int, int]:
    """Members of the posterior, and the passes of each when `num_draws` draws are asked for. Views of the input make
    more passes worth while than there are weights."""
    members = len(model.posterior.nets(model.net))
    each = -(-num_draws // members)
    passes = model.posterior.num_passes(each)
    return members, passes if augment is None else max(passes, each)


def joined(chunks: Iterable[Any], num_draws: int) -> Iterable[Any]:
    """Chunks of draws joined up to JOINED_NUMBERS: statistics of many small outputs cost one pass, not many.

    They are copied to one place. Small outputs that stay where they are, between large activations that go, cut the
    heap into pieces too small for the next activation, and memory grows with the number of draws.
    """
    place, count = None, 0
    for chunk in chunks:
        leaves = [chunk] if isinstance(chunk, Tensor) else pytree.tree_leaves(chunk)
        n = len(leaves[0])
        size = sum(t.numel() for t in leaves) // n
        if n >= num_draws or n * size >= JOINED_NUMBERS:
            yield chunk
            continue
        if place is None:
            room = min(num_draws, JOINED_NUMBERS // size + n)
            place = pytree.tree_map(partial(_room, room), chunk)
        pytree.tree_map(partial(_put, count), place, chunk)
        count += n
        if count * size >= JOINED_NUMBERS:
            yield pytree.tree_map(partial(_first, count), place)
            place, count = None, 0
    if count:
        yield pytree.tree_map(partial(_first, count), place)


def _room(n: int, like: Tensor) -> Tensor:
    return like.new_empty((n, *like.shape[1:]))


def _put(start: int, place: Tensor, values: Tensor) -> None:
    place[start : start + len(values)] = values


def _first(n: int, place: Tensor) -> Tensor:
    return place[:n]


def outputs(
    model: Any,
    call: Call,
    member: int,
    num_draws: int,
    batched: bool | None,
    compile: bool = False,
    views: Views | None = None,
) -> Iterable[Any]:
    """The network's predictions for `num_draws` draws of one member, in chunks (draws, batch, ...)."""
    posterior, net = model.posterior, model.net
    calls = repeat(call) if views is None else views
    if posterior.sampling == "moments":
        each = num_draws if views is None else 1
        for seen in islice(calls, num_draws // each):
            moments = finished(replace(model.pick(posterior.run(net, seen, member)), Tensor, certain))
            yield from draws_of(moments, each, call.generator, JOINED_NUMBERS)
        return
    if is_sharded_unit(model):  # the weights exist only inside forward
        for seen in islice(calls, num_draws):
            yield one_more(model.pick(model(seen.args, generator=seen.generator, **seen.kwargs)))
        return
    if posterior.deterministic and not compile:
        for seen in islice(calls, num_draws):
            yield one_more(model.pick(posterior.run_draw(net, seen, {}, member)))
        return
    if posterior.predicts_by_pass:
        n = 1 if call.generator is not None else _chunk(model, call, num_draws, batched)
        passes = [*islice(calls, num_draws)] if n > 1 else []
        together, refusal = (
            _vmapped(model, passes, member, {}, n, by_pass=True) if n == num_draws > 1 else (None, "")
        )
        if together is not None:
            yield together
            return
        for seen in passes or islice(calls, num_draws):
            yield one_more(model.pick(posterior.run(net, seen, member)))
        posterior.vmap_refusal = posterior.vmap_refusal or refusal
        return
    yield from of_draws(model, call, member, num_draws, batched, compile, views)


def of_draws(
    model: Any,
    call: Call,
    member: int,
    num_draws: int,
    batched: bool | None = None,
    compile: bool = False,
    views: Views | None = None,
) -> Iterable[Any]:
    """The network's predictions with `num_draws` draws of its weights, whatever its pass, in chunks."""
    posterior, net = model.posterior, model.net
    can = views is None and not compile and not posterior.vmap_refusal
    by_output = posterior.by_output(call, member) if can else frozenset()
    chunk = (
        1 if compile and views is not None else _chunk(model, call, num_draws, batched, compile, by_output)
    )
    if compile:
        made = ((min(chunk, num_draws - start), None) for start in range(0, num_draws, chunk))
        drawn = streamed(posterior, member, num_draws, chunk, None, views) if posterior.stored else made
        for (n, weights), seen in zip(drawn, repeat(call) if views is None else views, strict=False):
            result = compiled(model, member, n)(seen.args, dict(seen.kwargs), weights)
            yield pytree.tree_map(copied, result)
        return
    random = [w.name for w in model.selection.random]
    passes = num_draws if views is None else 1  # no two passes see the same view
    by_output, done = by_output if chunk > 1 else frozenset(), 0
    with Prefix(posterior.nets(net)[member], random, passes) as prefix:
        drawn = streamed(posterior, member, num_draws, chunk, call.generator, views, by_output)
        for n, weights in _without_graph(drawn):
            calls = [call] * n if views is None else [*islice(views, n)]
            at_once = n > 1 or bool(by_output)
            together, refusal = _vmapped(model, calls, member, weights, n) if at_once else (None, "")
            if together is None and by_output:
                posterior.whole_draws = True
                try:
                    yield from of_draws(model, call, member, num_draws - done, batched)
                except BaseException:
                    posterior.whole_draws = False  # it was not for the outputs
                    raise
                return
            done += n
            if together is not None:
                yield together
                continue
            for i, seen in enumerate(calls):
                one = {name: value[i] for name, value in weights.items()}
                with prefix.one_pass(one.values()):
                    output = posterior.run_draw(net, seen, one, member)
                yield one_more(model.pick(output))
            posterior.vmap_refusal = posterior.vmap_refusal or refusal  # the network itself takes this input


def streamed(
    posterior: Any,
    member: int,
    num_draws: int,
    chunk: int,
    generator: Generator | None,
    views: Any,
    by_output: frozenset[str] = frozenset(),
) -> Iterator[Any]:
    """Draws of one member, without weights `by_output`; with views as many as asked for, stored ones several times."""
    left = num_draws
    while by_output and left > 0:
        n = min(chunk, left)
        left -= n
        yield n, posterior.draw(member, n, left_out=by_output)
    while left > 0:
        for n, weights in posterior.stream(member, left, chunk, generator):
            left -= n
            yield n, weights
        if views is None:
            return


def _without_graph(draws: Iterator[Any]) -> Iterator[Any]:
    """Draws as constants, also where the passes with them are differentiated with respect to the input."""
    while True:
        with torch.no_grad():
            drawn = next(draws, None)
        if drawn is None:
            return
        yield drawn


def _vmapped(
    model: Any, calls: list[Call], member: int, weights: dict[str, Tensor], n: int, by_pass: bool = False
) -> tuple[Any, str]:
    """All n draws of `weights`, or passes, at once, each of its own call; None, and why, where the network has an
    operation that vmap cannot batch; None where the calls differ in shape."""
    if model.posterior.vmap_refusal:
        return None, ""
    call, alike = calls[0], all(each is calls[0] for each in calls)
    together = ((call.args, dict(call.kwargs)), None) if alike else stacked(calls)
    if together is None:
        return None, ""

    def one(draw: dict[str, Tensor], arguments: Any) -> Any:
        args, kwargs = arguments
        seen = call._replace(args=args, kwargs=kwargs)
        run = model.posterior.run if by_pass else partial(model.posterior.run_draw, weights=draw)
        return model.pick(run(model.net, seen, member=member))

    batched = BatchedRemoved(model.posterior.nets(model.net)[member])
    try:
        with warnings.catch_warnings(), Stacked.of(weights, compiled=False), batched:
            warnings.filterwarnings("ignore", "There is a performance drop")  # an op that vmap loops over
            draws = weights or {"": torch.empty(n)}  # what is random is drawn inside
            result = torch.func.vmap(one, (0, together[1]), randomness="different")(draws, together[0])
    except torch.OutOfMemoryError:
        return None, ""  # too many draws at once for this input; another may fit
    except (RuntimeError, NotImplementedError, ValueError, TypeError) as error:
        return None, str(error) or type(error).__name__
    if batched.found:
        return None, f"the network keeps an activation in its attribute {batched.found!r}"
    return result, ""


def _chunk(
    model: Any,
    call: Call,
    num_draws: int,
    batched: bool | None,
    compiled: bool = False,
    left_out: frozenset[str] = frozenset(),
) -> int:
    """How many draws to run at once: many for small inputs, one where a loop is as fast.

    Measured by benchmarks/draw_batching.py: batching the draws saves launches. On a CPU it loses the caches where the
    work itself is large; compiled code has few launches to save. Where most weights are shared by all draws (patched
    norm layers), a batch of draws is a larger batch of examples, up to SHARED_NUMBERS numbers in the input.
    """
    weights = sum(w.numel for w in model.selection.random if w.name not in left_out)
    on_disk = model.posterior.stored and next(model.parameters()).device.type == "cpu"
    most = STORED_NUMBERS if on_disk else VMAP_NUMBERS
    fit = max(1, min(num_draws, most // max(weights, 1)))
    if batched is not None:
        return fit if batched else 1
    tensors = [t for t in [*call.args, *call.kwargs.values()] if isinstance(t, Tensor)]
    numbers = sum(t.numel() for t in tensors)
    if all(t.device.type == "cpu" for t in tensors):
        small = numbers <= 2**14 and weights <= 2**20
    elif 8 * weights <= sum(w.numel for w in model.selection.weights):
        most = max(1, min(fit, SHARED_NUMBERS // max(numbers, 1)))
        return -(-num_draws // -(-num_draws // most))  # chunks of one size: compiled code is made for each
    elif compiled:
        small = max((t.shape[0] for t in tensors if t.dim()), default=1) <= 8
    else:
        small = numbers <= 2**19
    return fit if small else 1


def _is_one_graph(model: Any, call: Call, num_draws: int, batched: bool | None) -> bool:
    """Do all draws of a member run at once, made by the compiled code itself?"""
    posterior = model.posterior
    if posterior.sampling == "moments" or posterior.predicts_by_pass or posterior.stored:
        return False
    return not is_sharded_unit(model) and _chunk(model, call, num_draws, batched, True) == num_draws


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Eval mode, and every module's own mode again afterwards."""
    training = _training(model)
    if any(type(module).train is not nn.Module.train for module in training):
        model.eval()
    else:
        _set_training(training, False)
    try:
        yield
    finally:
        _set_training(training, True)


def _training(module: nn.Module) -> list[nn.Module]:
    """The modules inside that are in training mode. Called in every prediction: `Module.modules`, `Module.eval` and
    setting attributes would take as long as a whole prediction of a small network."""
    seen: dict[nn.Module, None] = {}
    waiting = [module]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen[module] = None
            waiting += [child for child in module._modules.values() if child is not None]
    return [module for module in seen if module.training]


def _set_training(modules: list[nn.Module], mode: bool) -> None:
    for module in modules:
        if isinstance(module, internals.ScriptModule):
            module.training = mode  # compiled code keeps its own attributes
        else:
            vars(module)["training"] = mode
