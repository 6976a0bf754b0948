"""Crashes, races and full disks: processes are killed at every step between their writes, and at random moments.

The tests run this file as a program: it imports everything once and forks, so that one more crash takes milliseconds.
It draws no noise itself: OpenDP's threads and a later fork do not go together.
In a child every write, commit, draw of noise and answer that leaves is a step at which it can be killed.
"""

from __future__ import annotations

import functools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

import numpy as np
from tests.soak import ROOT, SOAK, amount

from terrine.budgets import CountBudget, FilterBudget
from terrine.errors import BudgetError, LedgerError, OrderGridWarning
from terrine.labeller import KeptVotes, Labeller
from terrine.labeller import labeller as labeller_module
from terrine.ledger import Ledger
from terrine.mechanisms import ConfidentGNMax, GNMax, Outcome, answer
from terrine.noise import SeededNoise, _measurement
from terrine.votes import Votes

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # a killed process loses nothing that it wrote
CONFIDENT = ConfidentGNMax(threshold=12, sigma_check=6, sigma_vote=40)  # 20 teachers: labels are nearly pure chance
N = 400
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 3))
COUNTS = RNG.multinomial(20, [0.5, 0.2, 0.2, 0.1], size=N)
REQUESTS = {"a": range(6), "b": range(3, 9), "c": range(2)}
BUDGETS = {
    "count": CountBudget(CONFIDENT, n_queries=24, n_answers=12, delta=1e-5),
    "filter": FilterBudget(epsilon=40, delta=1e-5, order=4),
}


def kept():
    return KeptVotes(X, Votes(COUNTS, n_teachers=20))


def place(folder):
    """Where a folder's ledger is: in it, or on a server."""
    url = folder / "url"
    return url.read_text() if url.exists() else folder / "ledger.sqlite"


def note(folder, name, what):
    """One line to a file: what another process can see from now on."""
    with (folder / name).open("a") as file:
        file.write(json.dumps(what) + "\n")


def notes(folder, name):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()] if (folder / name).exists() else []


def work(folder, budget, requests, step=lambda: None, at_once=4):
    """Label request by request; whatever leaves the labeller is noted down, and so is every draw."""
    asked = Labeller(kept(), CONFIDENT, Ledger(place(folder), budget=budget), at_once=at_once)

    def noted(mechanism, votes, **options):
        note(folder, "draws", [len(votes), 0])
        step()
        drawn = answer(mechanism, votes, **options)
        note(folder, "draws", [0, drawn.n_answered])
        step()
        return drawn

    labeller_module.answer = noted
    for name, rows in requests.items():
        try:
            got = asked.label(X[rows], request_id=name)
        except BudgetError:
            continue
        step()
        note(folder, "left", [list(rows), got.labels.tolist(), got.outcomes.tolist()])
        step()


class Doomed:
    """Kills its own process at the given step, counted from 1: before and after writes; in a soak, reads too."""

    def __init__(self, last):
        import sqlalchemy as sa

        self.left = last
        sa.event.listen(sa.Engine, "before_cursor_execute", self.statement)
        sa.event.listen(sa.Engine, "after_cursor_execute", self.statement)
        sa.event.listen(sa.Engine, "commit", self.commit)

    def statement(self, connection, cursor, statement, *_):
        if SOAK or statement.startswith(("INSERT", "CREATE TABLE")):
            self()

    def commit(self, connection):
        if SOAK or connection.get_execution_options()["terrine_write"]:
            self()

    def __call__(self):
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


def fork(function, *arguments):
    child = os.fork()
    if child:
        return child
    try:
        function(*arguments)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def outcome(child):
    """Whether a child ended by itself; True if it was killed."""
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.waitstatus_to_exitcode(status) == 0
    return False


def check(folder, budget):
    """What must hold at any moment; the answers on disk, by query."""
    left, draws = notes(folder, "left"), notes(folder, "draws")
    try:
        ledger = Ledger(place(folder))
    except LedgerError:  # killed before there was one
        assert not left
        assert not draws
        return {}
    with ledger:
        assert ledger.verify() == []
        entries = ledger.entries()
        asked = Labeller(kept(), CONFIDENT, ledger, rng=SeededNoise(0))  # it only names queries
        guarantee = ledger.budget.guarantee()
        lines = map(json.loads, ledger.export())
        stored = {line["query"]: (line["label"], line["outcome"]) for line in lines if line["record"] == "answer"}
    if entries:
        assert budget.holds(entries[-1].total)
        assert sum(n for n, _ in draws) <= entries[-1].total.queries, "noise was drawn that nobody paid for"
        assert sum(n for _, n in draws) <= entries[-1].total.answers, "a vote was drawn that nobody paid for"
    else:
        assert not draws
    assert guarantee == budget.guarantee()
    for rows, labels, outcomes in left:
        for query, label, how in zip(asked._queries(X[rows], None), labels, outcomes, strict=True):
            if how != Outcome.UNASKED:
                assert stored[query] == (label, how), "an answer left that is not on disk, or is another there"
    return stored


def resume(folder, budget, before):
    """Run to the end after a crash: nothing that was answered changes."""
    assert not outcome(fork(work, folder, budget, REQUESTS))
    after = check(folder, budget)
    assert before.items() <= after.items()


def killed_at_every_step(where, kind, stride, urls=None):
    """Until a child lives to its end; on a server, in a new database each time, until there is none left."""
    budget, point = BUDGETS[kind], 1
    budget.price(CONFIDENT, n_queries=1, n_answers=1)
    while True:
        folder = Path(tempfile.mkdtemp(dir=where))
        if urls is not None:
            if not urls:
                return {"points": point - 1}
            (folder / "url").write_text(urls.pop())
        killed = outcome(fork(lambda f=folder, p=point: work(f, budget, REQUESTS, Doomed(p))))
        before = check(folder, budget)
        if not killed:
            return {"points": point - 1}
        resume(folder, budget, before)
        point += stride


def killed_at_random(folder, times):
    """One ledger, killed again and again while it is written to without a pause."""
    budget = CountBudget(CONFIDENT, n_queries=5000, n_answers=4000, delta=1e-5)
    chance = random.Random()
    before = {}
    for k in range(times):
        requests = {f"{k}-{i}": range(i, i + 12) for i in range(0, N - 12, 4)}
        child = fork(work, folder, budget, requests)
        time.sleep(chance.uniform(0.02, 0.6))
        os.kill(child, signal.SIGKILL)
        outcome(child)
        after = check(folder, budget)
        assert before.items() <= after.items()
        before = after
    resume(folder, budget, before)
    return {"answers": len(before)}


def race(folder, n_children, overlap, n_queries, url=None):
    """Children make one ledger and label at the same time, the same rows or each its own, till the budget is empty."""
    if url is not None:
        (folder / "url").write_text(url)
    budget = CountBudget(GNMax(sigma=40), n_queries=n_queries, delta=1e-5)

    def child(k):
        asked = Labeller(kept(), GNMax(sigma=40), Ledger(place(folder), budget=budget), at_once=3)
        start = 0 if overlap else 40 * k
        while not (folder / "go").exists():
            time.sleep(0.001)
        try:
            got = asked.label(X[start : start + 40], request_id=f"child-{k}")
        except BudgetError:
            note(folder, "empty", k)
        else:
            note(folder, f"left-{k}", [got.labels.tolist(), got.outcomes.tolist()])

    children = [fork(child, k) for k in range(n_children)]
    time.sleep(0.2)
    (folder / "go").touch()
    killed = [outcome(child) for child in children]
    assert not any(killed)
    left = [found[0] for k in range(n_children) if (found := notes(folder, f"left-{k}"))]
    with Ledger(place(folder)) as ledger:
        assert ledger.verify() == []
        charged = ledger.summary().queries
        assert ledger.summary().unsettled == 0
    given = sum(how == Outcome.TEACHERS for _, outcomes in left for how in outcomes)
    if overlap:  # one answer each, whoever drew it
        assert all(labels == left[0][0] for labels, _ in left)
        assert len(left) == n_children
        assert 40 <= charged <= n_queries
    else:
        assert given == charged == n_queries  # never one more, and none is lost
    return {"given": given, "charged": charged}


def full_disk(folder, when):
    """No byte more may be written: from the start, or from the moment that noise is drawn."""
    budget = CountBudget(CONFIDENT, n_queries=100, delta=1e-5)

    def child():
        asked = Labeller(kept(), CONFIDENT, Ledger(folder / "ledger.sqlite", budget=budget))
        size = max(file.stat().st_size for file in folder.iterdir())

        def full(mechanism, votes, **options):
            fill()
            return answer(mechanism, votes, **options)

        def fill():
            resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1, resource.RLIM_INFINITY))

        if when == "reserve":
            fill()
        else:
            asked.label(X[100:120], request_id="before")  # the file grows beyond its limit
            size = max(file.stat().st_size for file in folder.iterdir())
            labeller_module.answer = full
        try:
            asked.label(X[:4], request_id="a")
        except LedgerError as error:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            note(folder, "said", str(error))

    assert not outcome(fork(child))
    with Ledger(folder / "ledger.sqlite") as ledger:
        assert ledger.verify() == []
        return {"said": notes(folder, "said"), "unsettled": ledger.summary().unsettled}


def read_only(folder):
    """As a user who may read the ledger and not write it, nor beside it."""
    budget, outside = BUDGETS["count"], folder.parent

    def make(name):
        asked = Labeller(kept(), CONFIDENT, Ledger(outside / name, budget=budget))
        asked.label(X[:2], request_id="known")
        asked.ledger.close()

    def child():
        make("scratch")  # so that all is imported
        if os.geteuid() == 0:  # whom no mode stops
            os.seteuid(65534)
        try:
            Labeller(kept(), CONFIDENT, Ledger(folder / "ledger.sqlite")).label(X[:4], request_id="a")
        except LedgerError as error:
            os.seteuid(os.getuid())
            note(outside, "said", str(error))

    assert not outcome(fork(make, folder / "ledger.sqlite"))
    outside.chmod(0o755)
    (folder / "ledger.sqlite").chmod(0o444)
    folder.chmod(0o555)
    assert not outcome(fork(child))
    folder.chmod(0o755)
    (folder / "ledger.sqlite").chmod(0o644)
    with Ledger(folder / "ledger.sqlite") as ledger:
        assert ledger.summary().queries == 2
    return {"said": notes(outside, "said")}


def run(*calls):
    """This file as a program: what each call, a function's name and arguments, returns."""
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
        command = [sys.executable, "-m", "tests.ledger.test_kill", folder, json.dumps(calls)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def main(folder, calls):
    warnings.simplefilter("ignore", OrderGridWarning)
    for sigma in (6.0, 40.0):
        _measurement("gaussian", sigma)  # children need not import OpenDP
    found = []
    for k, (name, *arguments) in enumerate(json.loads(calls)):
        (Path(folder) / str(k)).mkdir(mode=0o755)
        found.append(globals()[name](Path(folder) / str(k), *arguments))
    print(json.dumps(found))


def databases(n):
    """So many new ones, or none where there is no server."""
    from tests.postgres import available, server  # not where this file is a program

    return [server().database() for _ in range(n)] if available() else []


@functools.cache
def everything():
    """What all tests look at, of one program: to start it takes longer than most of what it does."""
    steps = [
        ["killed_at_every_step", "count", amount(3, soak=1)],
        ["killed_at_every_step", "filter", amount(9, soak=1)],
    ]
    urls, raced = databases(amount(6, soak=150)), databases(2)
    on_server = [["killed_at_every_step", "count", amount(10, soak=1), urls]] if urls else []
    calls = [
        ["full_disk", "reserve"],
        ["full_disk", "keep"],
        ["read_only"],
        ["killed_at_random", amount(3, soak=10)],
        ["race", 3, False, 50],
        ["race", 3, True, 120],
    ]
    more = [[*call, url] for call, url in zip(calls[-2:], raced, strict=False)]
    results = run(*steps, *on_server, *calls, *more)
    n_kills = len(steps) + len(on_server)
    return results[:n_kills], results[n_kills:]


def killed():
    return everything()[0]


def others():
    return everything()[1]


def test_a_process_killed_between_any_two_writes_never_undercounts():
    assert all(one["points"] > 50 for one in killed()[:2])


def test_a_process_killed_at_any_moment_never_undercounts():
    assert others()[3]["answers"] > 0


def test_processes_that_race_never_get_one_answer_too_many_nor_two_for_one_query():
    own, shared = others()[4:6]
    assert own["given"] == 50
    assert shared["charged"] >= 40


def test_all_this_holds_on_a_server():
    from tests.postgres import server

    server()
    assert killed()[2]["points"] > 50
    own, shared = others()[6:]
    assert own["given"] == 50
    assert shared["charged"] >= 40


def test_a_full_or_read_only_disk_is_one_line_and_no_answer():
    at_reserve, at_keep, read_only = others()[:3]
    assert at_reserve["unsettled"] == 0
    assert at_keep["unsettled"] == 4  # reserved, drawn, and never let out
    for found in (at_reserve, at_keep, read_only):
        (said,) = found["said"]
        assert said.startswith("The ledger ledger.sqlite cannot be used: ")
        assert "\n" not in said


if __name__ == "__main__":
    main(*sys.argv[1:])
