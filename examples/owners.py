# %% [markdown]
# # Several owners
# Two hospitals. Each trains teachers on its own patients and never shows a row to the other; both hand only their
# teachers' ballots to the one who tallies. Ballots are secret too: whoever tallies is trusted with them.
# Needs `pip install terrine` and nothing more.

# %%
import tempfile
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression

from terrine import (
    CountBudget,
    Labeller,
    Ledger,
    PrivateData,
    PublicData,
    SklearnTeacher,
    SupervisedStudent,
    fit_student,
    fit_teachers,
    least_noise,
    new_key,
    partition,
    tally,
)
from terrine.labeller import KeptVotes

CLASSES = ("benign", "malignant")
rng = np.random.default_rng(0)


def patients(n, *, older):
    y = (rng.random(n) < 0.4).astype(np.int64)
    return np.column_stack([rng.normal(50 + older + 12 * y, 8), rng.normal(25 + 4 * y, 3)]), y


public, _ = patients(400, older=0)
new, truth = patients(500, older=2)

# %% [markdown]
# Each hospital, on its own machine. `first_id` keeps the teachers of the two apart.

# %%
ballots = []
for first_id, older in ((0, 0), (50, 4)):
    X, y = patients(3000, older=older)
    private = PrivateData(X, y)
    shares = partition(private, n_teachers=50, method="balanced", key=new_key())
    teacher = SklearnTeacher(estimator=LogisticRegression(max_iter=500))
    teachers = fit_teachers(private, shares, teacher, classes=CLASSES, seed=0, first_id=first_id)
    ballots.append(teachers.ballots(PublicData(public[:100])))

# %% [markdown]
# Whoever tallies: one vote of 100 teachers, one ledger, one guarantee for the patients of both.

# %%
votes = tally(ballots)
mechanism = least_noise(n_queries=100, epsilon=1.5, delta=1e-5)
budget = CountBudget(mechanism, n_queries=100, delta=1e-5, relation=votes.relation)
with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder, "ledger.sqlite"), budget=budget) as ledger:
    kept = KeptVotes(public[:100], votes, classes=CLASSES)
    answers = Labeller(kept, mechanism, ledger).label(public[:100], request_id="all")
settings = SupervisedStudent(estimator=LogisticRegression(max_iter=500))
student = fit_student(settings, PublicData(public), answers, classes=CLASSES, seed=0)

# %%
print(budget.guarantee())
print(f"{votes.n_teachers} teachers of {len(ballots)} owners")
print(f"student: {np.mean(student.predict(new) == truth):.0%} right on {len(truth)} new rows")
