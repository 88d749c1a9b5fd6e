"""`bayesify demo`: handwritten digits, the plain network against Bayesian ones."""

import time
from typing import Annotated

import typer


def demo(
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the 1,347 training images.")] = 60,
    num_draws: Annotated[int, typer.Option(min=1, help="Draws averaged in each prediction.")] = 50,
    seed: Annotated[int, typer.Option(help="Seed of the weights, the order of the data and the draws.")] = 0,
) -> None:
    """Train the plain network and Bayesian ones on scikit-learn's digits and compare them.

    The last column is how well each method's uncertainty tells digits it has never seen in training
    (8 and 9, left out) from the ones it knows: 50 % is chance.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.table import Table

    import bayesify as bf

    methods = {
        "plain network": bf.Point(),
        "Monte-Carlo VI": bf.MonteCarloVI(prior=bf.prior("normal", std=0.3), kl_weight=0.1),
        "deep ensemble of 5": bf.DeepEnsemble(bf.Point(), 5),
    }
    console = Console()
    console.print("Digits 0–7 from scikit-learn: 8×8 pixels, an MLP 64-128-8; 8 and 9 are never shown.\n")
    table = Table(title=f"{epochs} epochs, {num_draws} draws, ECE with 15 bins")
    for column in (
        "method",
        "accuracy",
        "NLL",
        "ECE",
        "unseen digits found (AUROC)",
        "parameters",
        "seconds",
    ):
        table.add_column(column, justify="left" if column == "method" else "right")
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        for name, method in methods.items():
            task = progress.add_task(name, total=epochs)
            start = time.perf_counter()
            row = run(method, epochs, num_draws, seed, lambda task=task: progress.advance(task))
            table.add_row(
                name,
                f"{100 * row['accuracy']:.1f} %",
                f"{row['nll']:.3f}",
                f"{100 * row['ece']:.1f} %",
                f"{100 * row['auroc']:.1f} %",
                f"{row['parameters']:,.0f}",
                f"{time.perf_counter() - start:.1f}",
            )
    console.print(table)


def run(method: object, epochs: int, num_draws: int, seed: int, tick: object) -> dict[str, float]:
    """Train one method on digits 0–7; metrics on held-out ones, and AUROC against 8 and 9."""
    import torch
    from sklearn.datasets import load_digits
    from sklearn.metrics import roc_auc_score

    import bayesify as bf
    from bayesify.evaluation import evaluate

    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels)
    known, unseen = y < 8, x[y >= 8]
    x, y = x[known], y[known]
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    train, test = order[: 3 * len(x) // 4], order[3 * len(x) // 4 :]

    torch.manual_seed(seed)
    net = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
    model = bf.bayesify(net, method, num_data=len(train))  # type: ignore[arg-type]
    optimizer = model.optimizer(lr=3e-3)
    for _ in range(epochs):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            model.loss(x[batch], y[batch]).total.backward()
            optimizer.step()
        tick()  # type: ignore[operator]
    result = evaluate(model, [(x[test], y[test])], num_draws)
    entropy = torch.cat([model.predict(x[test], num_draws).entropy, model.predict(unseen, num_draws).entropy])
    is_unseen = torch.cat([torch.zeros(len(test)), torch.ones(len(unseen))])
    result["auroc"] = float(roc_auc_score(is_unseen, entropy))
    result["parameters"] = float(sum(p.numel() for p in model.parameters()))
    return result
