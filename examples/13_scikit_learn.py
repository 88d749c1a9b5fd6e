"""A table in scikit-learn: a pipeline with categories, a search over methods, intervals and counts.

The table is made up: rides of bicycles for hire, by weather, hour and temperature. Their number is a count that varies
more than Poisson's. The same data are told as a class (busy or not) and as a number.
"""

import numpy as np
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from bayesify.sklearn import BayesClassifier, BayesRegressor

rng = np.random.RandomState(0)
rows = 600
weather = rng.choice(["sun", "cloud", "rain"], rows)
hour, celsius = rng.uniform(0, 24, rows), rng.normal(15, 8, rows)
wet = np.where(weather == "rain", 1.2, 0.0)
rate = np.exp(2.5 + np.cos((hour - 16) * np.pi / 12) + 0.03 * celsius - wet)
rides = rng.negative_binomial(4, 4 / (4 + rate))  # variance: rate + rate² / 4
table = np.stack([weather.astype(object), hour, celsius], 1)  # a pandas or polars frame does as well
x, x_test, y, y_test = train_test_split(table, rides, random_state=0)
columns = make_column_transformer((OneHotEncoder(sparse_output=False), [0]), remainder="passthrough")

# a class, by the method that is best in cross-validation
busy = make_pipeline(columns, BayesClassifier(epochs=40, random_state=0))
grid = {"bayesclassifier__method": ["mc_vi", "laplace"]}
search = GridSearchCV(busy, grid, cv=3, scoring="neg_log_loss").fit(x, y > 20)
print(f"best method {search.best_params_['bayesclassifier__method']}, log loss {-search.best_score_:.3f}")
print(f"accuracy {search.best_estimator_.score(x_test, y_test > 20):.2f}")

# the number itself: by counts, and by a bell curve
for likelihood in ("negative_binomial", "normal"):
    model = make_pipeline(columns, BayesRegressor(likelihood=likelihood, epochs=60, random_state=0)).fit(x, y)
    encoded = model[:-1].transform(x_test)
    low, high = model[-1].predict_interval(encoded, coverage=0.9)
    inside = np.mean((low <= y_test) & (y_test <= high))
    print(f"{likelihood}: {100 * inside:.0f} % inside, lowest end {low.min():.0f}")
mean, std = model.predict(x_test[:1], return_std=True)
prediction = model[-1].predictive(encoded[:1])
share = float(prediction.epistemic.squeeze() / prediction.variance.squeeze())
print(
    f"a ride: {mean[0]:.0f} ± {std[0]:.0f}, of the variance {100 * share:.0f} % by what the model does not know"
)
