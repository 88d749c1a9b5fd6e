"""torchvision's classifiers made Bayesian (where torchvision works): python benchmarks/torchvision_conversion.py

For each: draws differ in train and eval, every variational parameter gets a gradient, the mean network
equals the original, the output shape is unchanged.
"""

import argparse
import copy

import torch
import torchvision

import bayesify as bf
from timing import table

NETS = ["resnet18", "vgg11_bn", "densenet121", "mobilenet_v3_small", "efficientnet_b0", "convnext_tiny"]
NETS += ["vit_b_16", "swin_t", "squeezenet1_0", "shufflenet_v2_x0_5", "regnet_y_400mf", "googlenet"]


def outcome(name: str, device: str) -> str:
    torch.manual_seed(0)
    options = {"init_weights": False, "aux_logits": False} if name == "googlenet" else {}
    net = getattr(torchvision.models, name)(weights=None, num_classes=10, **options).to(device)
    original = copy.deepcopy(net).eval()
    model = bf.bayesify(net, bf.MonteCarloVI(where=bf.where.all), num_data=100)
    x, y = torch.randn(4, 3, 224, 224, device=device), torch.randint(10, (4,), device=device)
    with torch.no_grad():  # first: training moves the running statistics of batch norm
        difference = (model.mean_net().eval()(x) - original(x)).abs().max().item()
    for mode in (True, False):
        model.train(mode)
        with torch.no_grad():
            if torch.equal(model(x), model(x)):
                return f"deterministic with training={mode}"
    model.train().loss(x, y).total.backward()
    missing = [n for n, p in model.named_parameters() if p.grad is None]
    if missing:
        return f"no gradient: {missing[0]}"
    return "ok" if difference < 1e-5 else f"mean network differs by {difference:g}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    device = parser.parse_args().device
    torch.backends.cudnn.deterministic = True
    table(
        f"torchvision {torchvision.__version__}",
        [[n, outcome(n, device)] for n in NETS],
        ["network", "outcome"],
    )


if __name__ == "__main__":
    main()
