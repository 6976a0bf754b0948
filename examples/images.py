# %% [markdown]
# # Images: handwritten digits
# The 1,797 digits that come with scikit-learn, as if 1,300 of them were private. So few images need a large ε:
# docs/guides/rows_and_teachers.md says why. Needs `pip install terrine` and nothing more.

# %%
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from terrine import PATEClassifier, least_noise

digits = load_digits()
order = np.random.default_rng(0).permutation(len(digits.data))
X, y = digits.data[order], digits.target[order]

# %%
model = PATEClassifier(
    LogisticRegression(max_iter=300),
    student=LogisticRegression(max_iter=300),
    classes=list(range(10)),
    n_teachers=100,
    method="balanced",
    mechanism=least_noise(n_queries=60, epsilon=4.0, delta=1e-4),
    n_queries=60,
    delta=1e-4,
)
model.fit(X[:1300], y[:1300], X_public=X[1300:1550])

# %%
print(model.guarantee_)
print(f"student: {np.mean(model.predict(X[1550:]) == y[1550:]):.0%} right on 247 new images")
