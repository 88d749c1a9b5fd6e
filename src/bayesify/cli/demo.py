"""`bayesify demo`: handwritten digits, the plain network against Bayesian ones."""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from bayesify.methods import Method

#: header -> side; short enough for 80 columns
COLUMNS = {
    "method": "left",
    "accuracy": "right",
    "NLL": "right",
    "ECE": "right",
    "unseen\nfound": "right",
    "parameters": "right",
    "seconds": "right",
}


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 1,082 training images.")] = 60,
    num_draws: Annotated[int, typer.Option(min=1, help="Draws averaged in each prediction.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the order of the data and the draws.")] = 0,
) -> None:
    """Train the plain network and Bayesian ones on scikit-learn's digits and compare them.

    The column "unseen found" is how well each method's uncertainty tells digits it has never seen in
    training (8 and 9, left out) from the ones it knows, as AUROC: 50 % is chance, 100 % is perfect.

    Example: bayesify demo --epochs 20
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from bayesify.cli.terminal import output, table, titled

    caption = f"{epochs} epochs, {num_draws} draws; ECE in 15 bins; unseen found: AUROC, 50 % is chance"
    made = table(COLUMNS)
    made.columns[0].no_wrap = True
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        for name, method in methods().items():
            task = progress.add_task(name, total=epochs)
            row = run(method, epochs, num_draws, seed, partial(progress.advance, task))
            made.add_row(
                name,
                f"{100 * row['accuracy']:.1f} %",
                f"{row['nll']:.3f}",
                f"{100 * row['ece']:.1f} %",
                f"{100 * row['auroc']:.1f} %",
                f"{row['parameters']:,.0f}",
                f"{row['seconds']:.1f}",
            )
    output().print(titled("Digits 0 to 7; 8 and 9 are never shown in training", made, caption))


def methods() -> dict[str, "Method"]:
    """What the demo compares."""
    import bayesify as bf

    return {
        "plain network": bf.Point(),
        "Monte-Carlo VI": bf.MonteCarloVI(prior=bf.prior("normal", std=0.3), kl_weight=0.1),
        "deep ensemble of 5": bf.DeepEnsemble(bf.Point(), 5),
    }


def run(
    method: "Method", epochs: int, num_draws: int, seed: int, tick: Callable[[], object]
) -> dict[str, float]:
    """Train one method on digits 0–7; metrics on held-out ones, and AUROC against 8 and 9."""
    import torch
    from sklearn.datasets import load_digits
    from sklearn.metrics import roc_auc_score

    import bayesify as bf

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    known, unseen = y < 8, x[y >= 8]
    x, y = x[known], y[known]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[: 3 * len(x) // 4], order[3 * len(x) // 4 :]

    start = time.perf_counter()
    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    model = bf.bayesify(net, method, num_data=len(train))
    optimizer = model.optimizer(lr=3e-3)
    for _ in range(epochs):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            model.loss(x[batch], y[batch]).total.backward()
            optimizer.step()
        tick()
    seconds = time.perf_counter() - start
    result = bf.evaluate(model, [(x[test], y[test])], num_draws)
    entropy = torch.cat([model.predict(x[test], num_draws).entropy, model.predict(unseen, num_draws).entropy])
    is_unseen = torch.cat([torch.zeros(len(test)), torch.ones(len(unseen))])
    result["auroc"] = float(roc_auc_score(is_unseen, entropy))
    result["parameters"] = float(sum(p.numel() for p in model.parameters()))
    result["seconds"] = seconds
    return result
