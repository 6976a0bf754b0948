# %% [markdown]
# # Texts: good and bad reviews
# Made-up reviews. Words and pairs of words are counted as far as the public texts have them: nothing is learned from
# private texts before a teacher sees its own, and nothing is downloaded. Needs `pip install terrine` and nothing more.

# %%
import random

from sklearn.linear_model import LogisticRegression

from terrine import PATEClassifier, Schema, least_noise, read_table

MOODS = ["bad", "good"]
WORDS = {"good": "warm kind lovely bright", "bad": "cold rude awful dull"}
PLAIN = ["the", "room", "staff", "food", "was", "very", "and", "with"]
random.seed(0)


def reviews(n):
    moods = [random.choice(MOODS) for _ in range(n)]
    texts = [
        " ".join(random.choice(WORDS[mood].split() if random.random() < 0.25 else PLAIN) for _ in range(25))
        for mood in moods
    ]
    return read_table({"review": texts}), moods


private, moods = reviews(4000)
public, _ = reviews(800)
new, truth = reviews(300)

# %% [markdown]
# The schema says what the column is. It is public.

# %%
schema = Schema.from_toml('[columns]\nreview = { kind = "text" }\n')
model = PATEClassifier(
    LogisticRegression(),
    student=LogisticRegression(),
    schema=schema,
    classes=MOODS,
    n_teachers=80,
    method="balanced",
    mechanism=least_noise(n_queries=150, epsilon=2.0, delta=1e-5),
    n_queries=150,
    delta=1e-5,
)
model.fit(private, moods, X_public=public)

# %%
print(model.guarantee_)
right = sum(a == b for a, b in zip(model.predict(new), truth, strict=True)) / len(truth)
print(f"student: {right:.0%} right on {len(truth)} new reviews")
