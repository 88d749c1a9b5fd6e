"""What a prediction costs when it is served: plain forward, frozen predictors, and the exported files in onnxruntime.

    python benchmarks/serving.py
    python benchmarks/serving.py --net lenet --batches 1

Times are CPU milliseconds of one thread, so that other work on the machine does not count: the least of five blocks
of calls. The last column is the largest difference between the
probabilities of onnxruntime and those of the frozen predictor.
"""

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

import bayesify as bf
from bayesify.nets import make
from timing import table

SHAPES = {"lenet": (1, 28, 28), "lenet_small": (1, 28, 28), "resnet20": (3, 32, 32)}
METHODS = {
    "point": lambda: bf.Point(),
    "mc_vi": lambda: bf.MonteCarloVI(where=bf.where.all),
    "emp": lambda: bf.EnsemblePatching(where=bf.where.output),
    "ensemble": lambda: bf.DeepEnsemble(num_members=5),
    "vdp": lambda: bf.DensityPropagation(),
}


def milliseconds(call: Callable[[], object], calls: int) -> float:
    """Of one call."""
    blocks = []
    for _ in range(6):  # the first one warms up
        start = time.process_time()
        for _ in range(calls):
            call()
        blocks.append(time.process_time() - start)
    return 1e3 * min(blocks[1:]) / calls


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--net", default="lenet_small", choices=SHAPES)
    parser.add_argument("--methods", nargs="+", default=[*METHODS], choices=[*METHODS])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 32])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--calls", type=int, default=10, help="in each of the five blocks")
    a = parser.parse_args()
    import onnxruntime

    torch.set_num_threads(1)
    one_thread = onnxruntime.SessionOptions()
    one_thread.intra_op_num_threads = 1
    rows = []
    for name in a.methods:
        torch.manual_seed(0)
        net = make(a.net, num_outputs=10, input_shape=SHAPES[a.net]).eval()
        plain = make(a.net, num_outputs=10, input_shape=SHAPES[a.net]).eval()
        frozen = bf.bayesify(net, METHODS[name](), num_data=1000).eval().freeze(a.draws)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            path = Path(folder) / "model.onnx"
            start = time.perf_counter()
            bf.export(frozen, torch.randn(2, *SHAPES[a.net]), path)
            written = time.perf_counter() - start
            size, session = path.stat().st_size, onnxruntime.InferenceSession(path, one_thread)
        for batch in a.batches:
            x = torch.randn(batch, *SHAPES[a.net])
            feed = {"x": x.numpy()}
            with torch.inference_mode():
                forward, eager, onnx = (
                    milliseconds(call, a.calls)
                    for call in (partial(plain, x), partial(frozen, x), partial(session.run, None, feed))
                )
            cost = frozen.cost(x)
            apart = (torch.as_tensor(session.run(["probs"], feed)[0]) - frozen(x).probs).abs().max()
            rows.append(
                [
                    f"{name}, batch {batch}",
                    str(cost.num_draws),
                    str(cost.num_passes),
                    f"{forward:.2f}",
                    f"{eager:.2f}",
                    f"{onnx:.2f}",
                    f"{size / 2**20:.2f}",
                    f"{written:.0f}",
                    f"{float(apart):.0e}",
                ]
            )
            print("...", *rows[-1], flush=True)
    header = ["method", "draws", "passes", "plain ms", "frozen ms", "onnx ms", "MiB", "export s", "apart"]
    table(f"{a.net}, one CPU thread, torch {torch.__version__}", rows, header)


if __name__ == "__main__":
    main()
