"""Networks that take their labels by keyword and return a loss, as those of transformers do, for loops that call them
so: its Trainer, accelerate, pipelines."""

import inspect
import sys
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bayesify import torch_internals as internals
from bayesify.checks import as_tensor
from bayesify.likelihoods import Likelihood, likelihood
from bayesify.model.bayesian_module import BayesianModule
from bayesify.moments import Moments
from bayesify.objectives import negative_elbo
from bayesify.predict.accumulation import Accumulator, one_more
from bayesify.predict.predictive import Predictive
from bayesify.weights import as_call
from bayesify.weights.calls import REFUSAL

IGNORED = -100  # labels of this value do not count, as in torch and transformers
LABELS = frozenset({"labels", "start_positions"})  # arguments of which a network makes a loss
CAUSAL = "ForCausalLM"
#: heads of transformers that have classes for each token; they stand last
BY_TOKEN = (CAUSAL, "ForMaskedLM", "ForTokenClassification", "ForConditionalGeneration")
#: what loops and pipelines ask a network for
OF_THE_NETWORK = {"config", "device", "dtype", "get_input_embeddings", "can_generate", "name_or_path"}
#: of these, decoders alone are told the next token
SHIFTED = (CAUSAL, "ForConditionalGeneration")


class LabelledModule(BayesianModule):
    """A `BayesianModule` that is called as its network is: model(input_ids=…, labels=…) has `loss` and `logits`.

    train():  one pass. `loss` is −ELBO / N for each label that counts: of a head with one label for each example
              `model.loss(x, y).total`; of one with a label for each token that, divided by the tokens of an example.
              For methods with an optimiser of their own, which scales by examples, it stays −ELBO / N for each example
    eval():   `logits` are log p(y | x) averaged over `num_draws` draws (of a regression the mean), `loss` is
              −log p(labels) under the same average for each label that counts, without the KL

    `num_items_in_batch`, which the Trainer gives, are the labels that count in all batches of a step. The loss of a
    batch of B examples is B / num_items_in_batch · (nll + kl_weight · kl / N): in every step nll and KL have the
    weights of the ELBO, whatever the accumulation and the padding.
    model(x), without keywords, stays one pass with what the network returns, and model(x, target=y) a `bf.Loss`.
    """

    #: draws that calls in eval mode average over
    num_draws: int = 20
    #: what the Trainer asks for: `forward` takes num_items_in_batch; nothing is left out of the state
    accepts_loss_kwargs = True
    _keys_to_ignore_on_save = None
    #: `model.optimizer` was called
    has_optimizer: bool = False

    @property
    def loss_type(self) -> str | None:
        """The kind of the head; by it the Trainer counts labels."""
        return head_of(self.net)

    def forward(
        self,
        x: Any = None,
        target: Any = None,
        *,
        labels: Any = None,
        num_items_in_batch: Any = None,
        **inputs: Any,
    ) -> Any:
        """See the class."""
        if target is not None or (x is not None and labels is None):
            return super().forward(x, target, **inputs)
        if labels is None and num_items_in_batch is not None:
            raise ValueError(
                "the labels were taken out of the batch, so the loss would lack the KL: the Trainer does so for "
                "label_smoothing_factor and compute_loss_func. Leave them out; "
                "bf.likelihood('categorical', label_smoothing=0.1) smooths labels"
            )
        if labels is None:
            return self._checked(super().forward(**inputs)) if self.training else self._predicted(x, inputs)
        labels = as_tensor(labels, "labels", next(self.parameters()))
        if self._is_encoder_decoder() and not {"decoder_input_ids", "decoder_inputs_embeds"} & inputs.keys():
            inputs["decoder_input_ids"] = base_of(self.net).prepare_decoder_input_ids_from_labels(
                labels=labels
            )
        labels = self._shifted(labels)
        count = (labels != IGNORED).sum()
        items = (
            count if num_items_in_batch is None else torch.as_tensor(num_items_in_batch, device=count.device)
        )
        items = items.clamp_min(1)
        if not self.training:
            return self._predicted(x, inputs, labels, items)
        self._check_optimizer()
        outputs: list[Any] = []
        with self._locked():
            loss = negative_elbo(self, as_call(x, inputs, for_loss=True), labels, outputs=outputs)
        share = (count if self.method.own_optimizer else len(labels)) / items
        return _output(self._joined(outputs), share * loss.total)

    def __getattr__(self, name: str) -> Any:
        if name == "generate":
            raise AttributeError("a sequence needs one draw for all of its tokens: model.draw().generate(…)")
        found = super().__getattr__
        return getattr(found("net"), name) if name in OF_THE_NETWORK else found(name)

    def optimizer(self, lr: float | None = None, **options: Any) -> torch.optim.Optimizer:
        """As of every model; to the Trainer it goes as `optimizers=(model.optimizer(…), None)`."""
        self.has_optimizer = True
        return super().optimizer(lr, **options)

    def gradient_checkpointing_enable(self, *args: Any, **kwargs: Any) -> None:
        """Refused: the network would be recomputed when the drawn weights are gone."""
        raise RuntimeError(REFUSAL)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """As of every module, but that tied weights have memory of their own under each name, as safetensors ask."""
        state = super().state_dict(*args, **kwargs)
        seen: set[int] = set()
        for name, value in state.items():
            place = value.untyped_storage().data_ptr() if isinstance(value, Tensor) and value.numel() else 0
            state[name] = value.clone() if place in seen else value
            seen |= {place} if place else set()
        return state

    def __reduce__(self) -> Any:  # the class is made when it is needed: copies and pickles name the network's
        return _empty, (type(base_of(self.net)),), self.__dict__

    def _shifted(self, labels: Tensor) -> Tensor:
        """Of causal heads the next token at each place; the last has none."""
        if self.loss_type not in SHIFTED or self._is_encoder_decoder():
            return labels
        return F.pad(labels, (0, 1), value=IGNORED)[..., 1:]

    def _is_encoder_decoder(self) -> bool:
        return getattr(getattr(self.net, "config", None), "is_encoder_decoder", False)

    def _check_optimizer(self) -> None:
        """A method with an optimiser of its own needs it."""
        if self.method.own_optimizer and not self.has_optimizer:
            raise ValueError(
                f"{self.method.name!r} is trained by an optimiser of its own, which this loop does not have: "
                f"Trainer(…, optimizers=(model.optimizer(), None)), with max_grad_norm=0 in TrainingArguments"
            )

    def _checked(self, output: Any) -> Any:
        """The network got no labels of another name, of which it makes a loss without the KL."""
        if getattr(output, "loss", None) is not None:
            raise ValueError(
                f"{type(self.net).__name__} made a loss of its own, which lacks the KL: what it is to tell must be "
                f"`labels`; heads that take several targets are trained by model.loss(inputs, target)"
            )
        return output

    def _joined(self, outputs: list[Any]) -> Any:
        """The logits of the passes of a loss: of several their average."""
        if len(outputs) == 1:
            return outputs[0].mean if isinstance(outputs[0], Moments) else outputs[0]
        accumulator = Accumulator(self.likelihood)
        for output in outputs:
            accumulator.add(one_more(output.mean if isinstance(output, Moments) else output))
        return _logits(accumulator.result())

    def _predicted(self, x: Any, inputs: dict[str, Any], labels: Any = None, items: Any = None) -> Any:
        """The average over draws."""
        args, kwargs = as_call(x, inputs)[:2]
        named = inspect.signature(base_of(self.net).forward).bind_partial(*args).arguments
        found = self.predict({**named, **kwargs}, self.num_draws)
        loss = None if labels is None else -found.log_prob(labels).sum() / items
        return _output(_logits(found), loss)


def takes_labels(net: nn.Module) -> bool:
    """Is it called as networks of transformers are?"""
    script = internals.ScriptModule  # has no signature, and is refused further on
    if "transformers" not in sys.modules or not isinstance(net, nn.Module) or isinstance(net, script):
        return False
    return not LABELS.isdisjoint(inspect.signature(base_of(net).forward).parameters)


def base_of(net: Any) -> Any:
    """The network inside of a PEFT model; another as it is."""
    return getattr(net, "get_base_model", lambda: net)()


def head_of(net: nn.Module) -> str | None:
    """The kind of head of a network of transformers, by its name for the loss."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CAUSAL_NAMES

    base = base_of(net)
    return CAUSAL if type(base).__name__ in CAUSAL_NAMES.values() else getattr(base, "loss_type", None)


def likelihood_for(net: nn.Module, name: str) -> Likelihood:
    """The likelihood of that name; for heads with classes for each token, these stand last."""
    by_token = name == "categorical" and takes_labels(net) and head_of(net) in BY_TOKEN
    return likelihood(name, **({"class_dim": -1} if by_token else {}))


def class_for(net: nn.Module) -> type[LabelledModule]:
    """`LabelledModule` with the signature of the network's `forward`, by which the Trainer chooses columns."""
    network: Any = type(base_of(net))
    return _class_for(network)


@cache
def _class_for(network: Any) -> type[LabelledModule]:

    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return LabelledModule.forward(self, *args, **kwargs)

    forward.__signature__ = inspect.signature(network.forward)  # type: ignore[attr-defined]
    own = {"forward": forward, "__module__": __name__, "__doc__": LabelledModule.__doc__}
    return type(f"Bayesian{network.__name__}", (LabelledModule,), own)


def _empty(network: type) -> LabelledModule:
    made = _class_for(network)
    return made.__new__(made)


def _logits(found: Predictive) -> Tensor:
    """Of classes the logits of the averaged probabilities, of numbers their mean."""
    if found.likelihood.task == "regression":
        return found.mean
    if found.likelihood.class_dim is None:
        return found.mean.logit(eps=torch.finfo(found.mean.dtype).eps)
    return found.mean.clamp_min(torch.finfo(found.mean.dtype).tiny).log()


def _output(logits: Any, loss: Any) -> Any:
    from transformers.modeling_outputs import SequenceClassifierOutput

    return SequenceClassifierOutput(loss=loss, logits=logits)
