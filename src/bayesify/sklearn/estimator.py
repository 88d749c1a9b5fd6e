"""What both estimators do: training by `bf.fit`, fixed draws to predict with, files in place of pickled models."""

import copy
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Generator, nn

try:
    from sklearn.base import BaseEstimator
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(f"bayesify.sklearn needs {error.name}: pip install 'bayesify[all]'") from None

from bayesify import nets
from bayesify.checks import check_positive_whole
from bayesify.data import Loader, Split
from bayesify.engine import fit
from bayesify.engine.randomness import random_state, restore_random_state, seed_everything
from bayesify.files.storage import load, save
from bayesify.likelihoods import LIKELIHOODS, Likelihood, check_likelihood
from bayesify.likelihoods import likelihood as make_likelihood
from bayesify.methods import Method
from bayesify.model import BayesianModule, bayesify
from bayesify.predict.predictive import Predictive
from bayesify.recipes import recipe
from bayesify.sklearn.rows import Scaling
from bayesify.sklearn.weighted import Weighted
from bayesify.weights.kinds import kind_of_network

AT_ONCE = 4096  # rows that are predicted together
BATCH, LEAST_BATCH, BATCHES = 128, 16, 20  # as the recipes have it; smaller where the rows make fewer batches
#: of standardised targets: in the steps of a small table training moves it by a factor of about three
NOISE = {"std": 0.3, "learn_std": True}


class BayesEstimator(BaseEstimator):
    """The common part of `BayesClassifier` and `BayesRegressor`, which name the arguments."""

    method: str | Method
    net: str | nn.Module | Callable[..., nn.Module] | None
    likelihood: str | Likelihood
    recipe: str | None
    epochs: int | None
    batch_size: int | None
    num_draws: int
    device: str
    random_state: Any
    verbose: bool

    # -- training ----------------------------------------------------------------------------------------
    def _forget(self) -> None:
        """A fit that is interrupted leaves no model, also of an earlier one."""
        if hasattr(self, "model_"):
            del self.model_

    def _weights(self, x: np.ndarray, sample_weight: Any) -> np.ndarray:
        """(rows,): how often each row counts."""
        weight = _check_sample_weight(sample_weight, x, dtype=np.float64)
        if (weight < 0).any() or not (weight > 0).any():
            raise ValueError("sample_weight must be 0 or larger, and must not be zero for all rows")
        return weight

    def _law(self, task: str) -> Likelihood:
        """A likelihood of this estimator's own."""
        given = self.likelihood
        options = NOISE if given == "normal" else {}
        law = make_likelihood(given, **options) if isinstance(given, str) else copy.deepcopy(given)
        check_likelihood(law)
        if law.task != task or (task == "classification" and not law.is_multiclass):
            fitting = ", ".join(name for name, each in LIKELIHOODS.items() if each.task == task)
            kind = "one class of each row" if task == "classification" else "numbers"
            raise ValueError(f"likelihood={law.name!r} is not for {kind}: use one of {fitting}")
        return law

    def _train(self, x: np.ndarray, y: np.ndarray, weight: np.ndarray, law: Likelihood, outputs: int) -> None:
        """Train on rows that differ; y: (rows,) classes, or (rows, numbers) as the network shall predict them."""
        check_positive_whole(self.num_draws, "num_draws", ": the draws that a prediction averages over")
        self._seed = seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self._inputs, self._made = Scaling.of(x, weight), (self.net, outputs, x.shape[1])
        self._own_law = None if law.name in LIKELIHOODS else copy.deepcopy(law)
        rows, target = torch.from_numpy(self._inputs(x)).float(), torch.from_numpy(y)
        trained: Likelihood = law
        if (weight != weight[0]).any():  # of mean 1, which steps are made for; `num_data` has their sum
            trained, target = Weighted(law), Weighted.joined(target, torch.from_numpy(weight / weight.mean()))
        size = min(BATCH, max(LEAST_BATCH, len(x) // BATCHES)) if self.batch_size is None else self.batch_size
        check_positive_whole(size, "batch_size", ": the rows of a step")
        loader = Loader(Split(rows, target), min(size, len(x)), shuffle=True, seed=seed)
        before = random_state()
        try:
            seed_everything(seed)
            count = max(round(weight.sum()), 1)
            model = bayesify(self._network(), self.method, trained, count, example=rows[:2])
            epochs = self.epochs
            if epochs is None:  # also of a method that comes behind the training
                epochs = recipe(kind_of_network(model.net), model.method).epochs_for(len(loader))
            options: dict[str, Any] = {"epochs": epochs, "recipe": self.recipe, "seed": seed}
            with warnings.catch_warnings():
                # rows have weights
                warnings.filterwarnings("ignore", "num_data=.* but the loader goes through")
                self.history_ = fit(
                    model, loader, accelerator=self.device, progress=bool(self.verbose), **options
                )
        finally:
            restore_random_state(*before)
        model.likelihood = law
        self._take(model.to("cpu"))

    def _network(self) -> nn.Module:
        """A network of the kind that was asked for when `fit` was called."""
        net, outputs, features = self._made
        if isinstance(net, nn.Module):
            return copy.deepcopy(net)
        options: dict[str, Any] = {"num_outputs": outputs, "input_shape": (features,)}
        if net is None or isinstance(net, str):
            return nets.make("mlp" if net is None else net, **options)
        if not callable(net):
            raise TypeError(
                f"net={net!r} must be a network, its name (`bayesify show nets`), or a function of num_outputs and "
                f"input_shape that makes one"
            )
        return net(**options)

    def _take(self, model: BayesianModule) -> None:
        """Predict by this model: with draws that are made once, in float64, so that what is predicted for a row does
        not depend on the others."""
        self._frozen = model.freeze(self.num_draws, Generator().manual_seed(self._seed)).double()
        self.model_ = model

    # -- prediction --------------------------------------------------------------------------------------
    def _predicted(self, X: Any, keep_samples: bool = False) -> Predictive:
        """In the units that the network predicts in."""
        check_is_fitted(self)
        rows = torch.from_numpy(self._inputs(validate_data(self, X, reset=False, dtype=np.float64)))
        return self._frozen.predict(iter(rows.split(AT_ONCE)), keep_samples)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    # -- pickles -----------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        """The model as the bytes of its file: no trained network is pickled."""
        state = {**super().__getstate__()}
        if "model_" in state:
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "model.safetensors"
                save(state["model_"], path)
                state["model_"] = path.read_bytes()
            del state["_frozen"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_" not in state:
            return
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            path.write_bytes(state["model_"])
            self._take(load(path, self._network(), likelihood=copy.deepcopy(self._own_law)))
