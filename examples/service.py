# %% [markdown]
# # Labels as a service
# The data's owner teaches and serves; a colleague with a key asks, and trains a student without seeing a private row.
# Here both are on one machine. Needs `pip install 'terrine[service,keep]'`.

# %%
import re
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from sklearn.linear_model import LogisticRegression

from terrine import SupervisedStudent, fit_student
from terrine.datasets import load
from terrine.service.client import RemoteLabeller

SETTINGS = """
[data]
name = "blobs"
[teachers]
number = 100
kind = "logistic"
keep = true
[privacy]
mechanism = "gnmax"
epsilon = 2.0
queries = 100
delta = 1e-5
"""
TERRINE = [sys.executable, "-u", "-m", "terrine"]

# %% [markdown]
# The owner. In life these are three commands in a shell: `terrine teach`, `terrine keys create`, `terrine serve`.

# %%
folder = Path(tempfile.mkdtemp())
(folder / "settings.toml").write_text(SETTINGS)
run = str(folder / "run")
subprocess.run([*TERRINE, "teach", str(folder / "settings.toml"), "--out", run], check=True, capture_output=True)
made = subprocess.run(
    [*TERRINE, "keys", "create", run, "--name", "colleague", "--quota", "80"],
    check=True,
    capture_output=True,
    text=True,
)
(key,) = re.findall(r"terrine_\S+", made.stdout)
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
server = subprocess.Popen(
    [*TERRINE, "serve", run, "--port", str(port)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
)
assert server.stdout is not None
server.stdout.readline()  # "Teachers and newest entries are intact. Serving ..."

# %% [markdown]
# The colleague.

# %%
try:
    public = load("blobs").public
    labeller = RemoteLabeller(f"http://127.0.0.1:{port}", key=key)
    rows = public.X[:80]
    answers = labeller.label(rows, request_id="first batch")
    again = labeller.label(rows, request_id="second batch")  # the same rows have the same answers, at no cost
    print("the same answers again:", bool((answers.labels == again.labels).all()))
    print("questions charged:", labeller.budget().queries)
    print("ε for all answers that it ever gives:", round(labeller.about().guarantee.epsilon, 3))
finally:
    server.terminate()
    server.wait()

# %%
test = load("blobs")
settings = SupervisedStudent(estimator=LogisticRegression(max_iter=500))
student = fit_student(settings, rows, answers, classes=labeller.classes, seed=0)
right = (student.predict(test.test_X) == test.test_y).mean()
print(f"student: {right:.0%} right on {len(test.test_y)} test rows")
