"""KL warm-up: a schedule for `model.kl_weight`, stepped like a learning-rate scheduler."""

from typing import Any

from bayesify.checks import Count, NotNegative, NotNegativeCount, checked


class KLWarmup:
    """kl_weight rises linearly from `start` to `end` over `num_steps` calls of `step()`, then stays.

    `end` is the model's present kl_weight unless given.

    >>> warmup = bf.KLWarmup(model, num_steps=1000)
    >>> for x, y in loader:
    ...     ...
    ...     warmup.step()
    """

    @checked
    def __init__(
        self,
        model: Any,
        num_steps: Count,
        start: NotNegative = 0.0,
        end: NotNegative | None = None,
        steps_done: NotNegativeCount = 0,
    ) -> None:
        if model.method.optimizer_adds_kl:
            raise ValueError(
                f"a KL warm-up (kl_warmup=) changes nothing of {model.method.name!r}, whose optimiser adds the KL "
                f"itself: leave it out"
            )
        self.model = model
        self.num_steps = num_steps
        self.start = start
        self.end = float(model.kl_weight) if end is None else end
        self.steps_done = steps_done
        self._apply()

    @property
    def kl_weight(self) -> float:
        """The weight at the present step."""
        share = min(self.steps_done / self.num_steps, 1.0)
        return self.start + share * (self.end - self.start)

    def step(self) -> None:
        """One step further; call it after every optimiser step."""
        self.steps_done += 1
        self._apply()

    def _apply(self) -> None:
        self.model.kl_weight.fill_(self.kl_weight)

    def state_dict(self) -> dict[str, Any]:
        """How far the warm-up is."""
        return {"steps_done": self.steps_done}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there."""
        self.steps_done = state["steps_done"]
        self._apply()
