"""What to cite."""

from collections.abc import Iterable

from bayesify.methods import method_class

#: suite -> its paper; methods carry theirs
PAPERS = {
    "calibration": "C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger: On Calibration of Modern Neural Networks. ICML 2017.",
    "conformal": "Y. Romano, M. Sesia, E. J. Candès: Classification with Valid and Adaptive Coverage. NeurIPS 2020.",
    "corruption": "D. Hendrycks, T. Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and "
    "Perturbations. ICLR 2019.",
}


def cited(methods: Iterable[str], suites: Iterable[str]) -> list[str]:
    """The papers behind these methods and suites, each once."""
    made = set(suites)
    found = [method_class(name).paper for name in methods]
    found += [paper for suite, paper in PAPERS.items() if suite in made]
    return list(dict.fromkeys(paper for paper in found if paper))
