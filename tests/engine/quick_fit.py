"""A short run of bf.fit on the data and the model of training_job."""

from typing import Any

from training_job import data, loader, model

import bayesify as bf
from bayesify.data import Loader


def quick(**options: Any) -> bf.History:
    settings: dict[str, Any] = {"epochs": 2, "recipe": None, "progress": False, "seed": 0, **options}
    made, given = settings.pop("model", None), settings.pop("loader", None)
    batches = loader("own") if given is None else given
    return bf.fit(model("mc_vi") if made is None else made, batches, Loader(data().test, 40), **settings)
