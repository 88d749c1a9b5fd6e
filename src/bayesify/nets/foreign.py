"""Networks from elsewhere: a user's own factory by its path, and image classifiers of `transformers`."""

import inspect
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from torch import Tensor, nn

from bayesify.names import check_choice, describe, import_factory, lookup
from bayesify.nets.parts import Shape

ATTENTION = ("eager", "sdpa")


def from_path(path: str, num_outputs: int, input_shape: Shape, options: Mapping[str, Any]) -> nn.Module:
    """The network returned by the callable at "package.module:factory".

    It gets `options`, and of `num_outputs` and `input_shape` those its signature accepts.
    """
    factory = import_factory(path, "net")
    sizes = {"num_outputs": num_outputs, "input_shape": input_shape}
    given = {name: size for name, size in sizes.items() if accepts(factory, name)} | dict(options)
    try:
        net = factory(**given)
    except Exception as error:
        call = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise RuntimeError(f"net={path!r} failed when called with ({call}): {describe(error)}") from error
    if not isinstance(net, nn.Module):
        raise TypeError(f"net={path!r} returned a {type(net).__name__}; it must return a torch.nn.Module")
    return net


def accepts(factory: Callable[..., Any], argument: str) -> bool:
    """Can `factory` be called with the keyword `argument`? A callable without a signature: no."""
    try:
        parameters = inspect.signature(factory).parameters
    except ValueError:
        return False
    named = parameters.get(argument)
    if named is not None and named.kind is not named.POSITIONAL_ONLY:
        return True
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())


class Logits(nn.Module):
    """A `transformers` classifier that returns its logits: (batch, c, h, w) -> (batch, num_outputs)."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(pixel_values=x).logits


def from_transformers(
    model_type: str, num_outputs: int, input_shape: Shape, options: Mapping[str, Any]
) -> Logits:
    """A randomly initialised image classifier of `transformers`; `options` are fields of its configuration.

    Nothing is downloaded. `num_labels`, and where the configuration has them `image_size` and `num_channels`,
    follow from the arguments; attn_implementation="eager" or "sdpa" is an option too. Some
    of these models own parameters without a `reset_parameters`.
    """
    argument = f"net='transformers:{model_type}'"
    transformers = import_transformers(argument)
    if len(input_shape) != 3:
        raise ValueError(f"input_shape={input_shape} must be (channels, height, width) for {argument}")
    known = transformers.models.auto.modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES
    lookup(known, model_type, f"{argument}: model type")
    fields = transformers.AutoConfig.for_model(model_type).to_dict()
    for option in options:
        lookup({**fields, "attn_implementation": None}, option, f"{argument}: option")
    # other names are those of repositories, whose code would be fetched and run
    check_choice(ATTENTION, options.get("attn_implementation", "eager"), f"{argument}: attn_implementation")
    settings = merge(image_settings(fields, input_shape, argument), {**options, "num_labels": num_outputs})
    # without a list of architectures, the Auto class fails on a model type that has several classifiers
    config = transformers.AutoConfig.for_model(model_type, architectures=[], **settings)
    return Logits(transformers.AutoModelForImageClassification.from_config(config))


def image_settings(fields: Mapping[str, Any], input_shape: Shape, argument: str) -> dict[str, Any]:
    """`image_size` and `num_channels`, at the top of the configuration or in its `vision_config`."""
    channels, height, width = input_shape
    if "vision_config" in fields:
        return {"vision_config": image_settings(fields["vision_config"], input_shape, argument)}
    if "num_channels" not in fields and channels != 3:
        raise ValueError(
            f"input_shape={input_shape}: {argument} takes 3 channels only; repeat a single channel, "
            f"as x.expand(-1, 3, -1, -1)"
        )
    one_number = height == width and not isinstance(fields.get("image_size"), list | tuple)
    sizes = {"image_size": height if one_number else (height, width), "num_channels": channels}
    return {name: size for name, size in sizes.items() if name in fields}


def merge(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Both, `second` winning; a nested configuration in both is merged in turn."""
    merged = dict(first)
    for key, value in second.items():
        nested = isinstance(value, Mapping) and key in first
        merged[key] = merge(first[key], value) if nested else value
    return merged


def import_transformers(argument: str) -> ModuleType:
    try:
        import transformers
        import transformers.models.auto.modeling_auto
    except ImportError as error:
        raise ImportError(
            f"{argument} needs the package transformers ({error}); install it with: pip install transformers"
        ) from error
    return transformers
