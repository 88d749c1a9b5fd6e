"""Files of sparse ensembles: of a sparsified weight only the kept entries are stored, as indices and values."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bayesify.diagnostics.variance import variance_posterior
from bayesify.files import read_header, read_tensors, write_tensors
from bayesify.likelihoods import likelihood
from bayesify.module import BayesianModule, bayesify
from bayesify.storage import header_of, make_method


def save_sparse(model: BayesianModule, path: str | Path) -> int:
    """Write a model that `sparsify` has cut to one safetensors file; returns its size in bytes.

    A kept weight costs its values and four bytes for its place. Weights that are fixed at their mean keep their mean,
    so only the entries of zeroed weights are left out altogether.
    """
    posterior = variance_posterior(model)
    tensors = dict(model.state_dict())
    sparse: dict[str, Any] = {}
    for name in posterior.slots:
        leaf = posterior.random_tensor(name)
        noise, mean = leaf._buffers.get("noise_gate"), leaf._buffers.get("mean_gate")
        if noise is None or mean is None or noise.dim() == 0:
            continue
        places = noise.flatten().nonzero().flatten()
        keys = [f"posterior.q.{name}.{free}" for free, p in leaf.named_parameters() if p.shape == noise.shape]
        if mean.dim():  # the mean of a weight that is not kept is zero
            keys.append(f"net.{name}")
        sparse[name] = {"shape": list(noise.shape), "keys": keys, "mean": mean.dim() > 0}
        for key in keys:
            tensors[key] = tensors[key].flatten()[places]
        del tensors[f"posterior.q.{name}.noise_gate"]
        if mean.dim():  # one number: were the means of the kept weights kept?
            kept = mean.flatten()[places]
            tensors[f"posterior.q.{name}.mean_gate"] = kept.amax() if len(kept) else mean.sum()
        tensors[f"places.{name}"] = places.to(torch.int32)
    write_tensors(Path(path), tensors, {**header_of(model), "sparse": sparse})
    return Path(path).stat().st_size


def load_sparse(path: str | Path, net: nn.Module, map_location: Any = None) -> BayesianModule:
    """The model that `save_sparse` wrote, around a network of the same architecture."""
    path = Path(path)
    header = read_header(path)
    if "sparse" not in header:
        raise ValueError(f"{path} is no file of save_sparse: read it with bf.load")
    tensors = read_tensors(path, header)
    made = make_method(header["method"]).fixed_to(header["random"])
    chosen = likelihood(header["likelihood"]["name"], **header["likelihood"]["options"])
    model = bayesify(net, made, chosen, header["num_data"])
    for name, entry in header["sparse"].items():
        places = tensors.pop(f"places.{name}").long()
        shape = torch.Size(entry["shape"])
        for key in entry["keys"]:
            tensors[key] = _spread(tensors[key], places, shape)
        noise = _spread(torch.ones(len(places)), places, shape)
        kept = tensors[f"posterior.q.{name}.mean_gate"]
        buffers = variance_posterior(model).random_tensor(name)._buffers
        gates = {"noise_gate": noise, "mean_gate": noise * kept if entry["mean"] else kept}
        for gate, value in gates.items():
            buffers[gate] = value.to(tensors[f"net.{name}"].dtype)
            tensors[f"posterior.q.{name}.{gate}"] = value
    model.load_state_dict(tensors)
    return model if map_location is None else model.to(map_location)


def _spread(values: Tensor, places: Tensor, shape: torch.Size) -> Tensor:
    """A tensor of zeros but for `values` at flat indices `places`."""
    dense = values.new_zeros(shape.numel())
    dense[places] = values
    return dense.view(shape)
