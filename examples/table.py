# %% [markdown]
# # A table: from private rows to predictions
# Made-up patients with words, numbers and blanks. Needs `pip install terrine` and nothing more; replace the three
# tables by your own: a pandas, polars or Arrow table, or `read_table("private.csv")`.

# %%
import random

from sklearn.ensemble import RandomForestClassifier

from terrine import PATEClassifier, least_noise, read_table

CLASSES = ["benign", "malignant"]
random.seed(0)


def patients(n):
    ill = [random.random() < 0.4 for _ in range(n)]
    table = {
        "age": [str(round(random.gauss(50 + 12 * one, 8))) for one in ill],
        "bmi": ["" if random.random() < 0.1 else f"{random.gauss(25 + 4 * one, 3):.1f}" for one in ill],
        "ward": [random.choice(["north", "south"] if one else ["east", "north", "west"]) for one in ill],
    }
    return read_table(table), [CLASSES[one] for one in ill]


private, diagnoses = patients(6000)  # rows that nobody else may see
public, _ = patients(1000)  # rows that anyone may see, without labels
new, truth = patients(500)  # rows to predict

# %% [markdown]
# 60 teachers learn from 100 patients each. They are asked about 150 public rows. Noise is chosen before any vote is
# read, so that these 150 answers cost at most ε = 3.

# %%
model = PATEClassifier(
    RandomForestClassifier(n_estimators=20),
    student=RandomForestClassifier(n_estimators=100, min_samples_leaf=3),
    classes=CLASSES,
    n_teachers=60,
    method="balanced",
    mechanism=least_noise(n_queries=150, epsilon=3.0, delta=1e-5),
    n_queries=150,
    delta=1e-5,
)
model.fit(private, diagnoses, X_public=public)

# %% [markdown]
# The student, and this sentence about it, may be published.

# %%
print(model.guarantee_)
right = sum(a == b for a, b in zip(model.predict(new), truth, strict=True)) / len(truth)
print(f"student: {right:.0%} right on {len(truth)} new rows (always the commonest class: 60%)")
