# %% [markdown]
# # A table: from private rows to predictions
# Made-up patients with words, numbers and blanks, two visits each. Needs `pip install 'terrine[keep]'` and pandas;
# replace the three tables by your own (`pd.read_csv`, with `sep=";", decimal=","` for what a German Excel wrote).

# %%
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from terrine import PATEClassifier, load_student

rng = np.random.default_rng(0)


def visits(n_patients, first=0):
    """Two rows of each patient, in the order of their visits."""
    ill = np.repeat(rng.random(n_patients) < 0.4, 2)
    return pd.DataFrame(
        {
            "patient": [f"p{first + k // 2}" for k in range(2 * n_patients)],
            "age": (50 + 12 * ill + 8 * rng.normal(size=len(ill))).round(),
            "bmi": np.where(
                rng.random(len(ill)) < 0.1, np.nan, (25 + 4 * ill + 3 * rng.normal(size=len(ill))).round(1)
            ),
            "ward": np.where(ill, rng.choice(["north", "south"], len(ill)), rng.choice(["east", "north"], len(ill))),
            "diagnosis": np.where(ill, "malignant", "benign"),
        }
    )


private = visits(2870)  # rows that nobody else may see
public = visits(500, first=5000).drop(columns=["patient", "diagnosis"])  # that anyone may see; labels are not needed
new = visits(250, first=9000)  # rows to predict

# %% [markdown]
# What it will promise, by which route, and whether the people are enough: before anything is spent. `planned_units` is
# about how many patients there are, from something public, such as the clinic's annual report: it is not counted. With
# a ledger, a fit that was stopped goes on by the same call, and is not paid for twice.

# %%
place = tempfile.TemporaryDirectory()  # take a folder that stays
folder = Path(place.name)
model = PATEClassifier(
    route="auto",  # teachers or a probe, by public numbers
    classes=["benign", "malignant"],
    epsilon=2.0,
    delta=1e-5,
    planned_units=3_000,
    ledger=folder / "ledger.sqlite",
)
print(model.plan(private, "diagnosis", X_public=public, unit="patient"), "\n")

# %%
model.fit(private, "diagnosis", X_public=public, unit="patient")

# %% [markdown]
# The student, and what is said here about it, may be published. How often it is right about the private rows was
# measured with noise, within the same ε.

# %%
print(model.guarantee_)
print(model.measured_)
model.save(folder / "student")  # to give away; a label service wants a run by `terrine run` instead

# %% [markdown]
# Whoever has the folder can apply it. Rank new rows by their probability, and act on the first of them.

# %%
student = load_student(folder / "student")
asked = new.drop(columns="diagnosis")
malignant = student.predict_proba(asked)[:, student.classes.index("malignant")]
print(asked.assign(malignant=malignant.round(3)).sort_values("malignant", ascending=False).head())
right = np.mean([student.classes[k] for k in student.predict(asked)] == new["diagnosis"])
print(f"student: {right:.0%} right on {len(new)} new rows (always the commonest class: 60%)")
place.cleanup()
