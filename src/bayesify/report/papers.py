"""What to cite for each method."""

PAPERS: dict[str, str] = {
    "mc_vi": "J. Nazarovs, R. R. Mehta, V. S. Lokhande, V. Singh: Graph Reparameterizations for Enabling 1000+ "
    "Monte Carlo Iterations in Bayesian Deep Neural Networks. UAI 2021.",
    "emp": "O. Chang, Y. Yao, D. Williams-King, H. Lipson: Ensemble Model Patching: A Parameter-Efficient "
    "Variational Bayesian Neural Network. 2019.",
    "vdp": "Efficient Scaling of Bayesian Neural Networks (VDP++). Anonymous authors.",
    "atmc": "J. Heek, N. Kalchbrenner: Bayesian Inference for Large Scale Image Classification. 2019.",
    "variance": "K. Neklyudov, D. Molchanov, A. Ashukha, D. Vetrov: Variance Networks: When Expectation Does Not "
    "Meet Your Expectations. ICLR 2019.",
    "deep_ensemble": "B. Lakshminarayanan, A. Pritzel, C. Blundell: Simple and Scalable Predictive Uncertainty "
    "Estimation using Deep Ensembles. NeurIPS 2017.",
    "mc_dropout": "Y. Gal, Z. Ghahramani: Dropout as a Bayesian Approximation: Representing Model Uncertainty in "
    "Deep Learning. ICML 2016.",
}
SAME = {"ecmp": "emp"}

CORRUPTIONS = (
    "D. Hendrycks, T. Dietterich: Benchmarking Neural Network Robustness to Common Corruptions and "
    "Perturbations. ICLR 2019."
)
TEMPERATURE = (
    "C. Guo, G. Pleiss, Y. Sun, K. Q. Weinberger: On Calibration of Modern Neural Networks. ICML 2017."
)


def cited(methods: list[str], suites: list[str]) -> list[str]:
    """The papers behind these methods and suites, each once."""
    keys = [SAME.get(method, method) for method in methods]
    found = [PAPERS[key] for key in keys if key in PAPERS]
    found += [TEMPERATURE] if "calibration" in suites else []
    found += [CORRUPTIONS] if "corruption" in suites else []
    return list(dict.fromkeys(found))
