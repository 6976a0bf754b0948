"""Teachers on a Ray cluster: the same as in one process, isolated, and unmoved by dead workers and dead nodes.

Nodes are sessions of processes on loopback addresses, as in tests/test_executors_ray.py, of one CPU each, so that
one may die; in `make soak` two, and more workers.
"""

from __future__ import annotations

import importlib.util
import time

from tests.conftest import need
from tests.ray_cluster import HEAD, SECOND, THIRD, Cluster, session
from tests.soak import SOAK, amount

NODES = amount((HEAD, SECOND), soak=(HEAD, SECOND, THIRD))
N_TEACHERS = amount(24, soak=40)

PROGRAM = """
    import warnings
    warnings.filterwarnings("error", message=".*not writable.*")  # what Ray hands out is read-only
    import torch
    from dataclasses import replace
    from tests.teachers.tasks import CLASSES, FOREST, NETS, images, prints, shares_of, task
    from terrine.datasets import PrivateData
    from terrine.teachers import ConvTeacher, SklearnTeacher, fit_teachers

    torch.set_num_threads(1)
    folder = Path(folder)

    class Traced:
        # A file for every start, that says where; renamed in the end
        def fit(self, shares, *, ids, **more):
            start = folder / f"{ids[0]} {ray.util.get_node_ip_address()} {os.getpid()} {time.time_ns()}"  # again: anew
            start.touch()
            models = super().fit(shares, ids=ids, **more)
            time.sleep(0.03 * (1 + ids[0] % 3))  # out of step, and time to be killed in
            start.rename(start.with_name(start.name + " done"))
            return models

    class Nets(Traced, ConvTeacher):
        pass

    class Forests(Traced, SklearnTeacher):
        pass

    def starts():
        found = [path.name.split() for path in folder.iterdir()]
        own = str(os.getpid())  # the preflight's: it teaches here, before any worker does
        return [(words[1], int(words[2]), words[0], len(words) == 5) for words in found if words[2] != own]

    def caught(where):
        # Stop a worker in the middle of a teacher, and only there
        for node, pid, teacher, done in starts():
            if done or where not in (None, node):
                continue
            try:
                os.kill(pid, signal.SIGSTOP)
                while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "TZ":
                    time.sleep(0.001)
            except OSError:  # dead before
                continue
            if (node, pid, teacher, False) in starts():
                return pid
            os.kill(pid, signal.SIGCONT)

    def taught(kind, *, data=None, store=None, kill=None):
        # Fingerprints or stored files, votes, the nodes that worked, and how often a teacher was begun
        for path in folder.iterdir():
            path.unlink()
        data = data or DATA
        killed = []

        def progress(share):
            if kill is not None and not killed:
                killed.extend(kill())

        shares = shares_of(data, n_teachers)
        ensemble = fit_teachers(data, shares, kind, classes=CLASSES, seed=5, executor=Ray(), store=store,
                                progress=progress)
        told = {"nodes": sorted({node for node, *_ in starts()}), "starts": len(starts()), "killed": len(killed)}
        return content(ensemble, store), ensemble.vote(X).counts.tolist(), told

    def until_killed(kind, *, kill, store=None):
        # Which node gets work, and when, is up to Ray: again where nobody was caught in the middle
        for again in range(6):
            result = taught(kind, store=store and f"{store}-{again}", kill=kill)
            if result[2]["killed"]:
                break
        return result

    def content(ensemble, store):
        if store is None:
            return prints(ensemble)
        return {path.name: path.read_bytes() for path in Path(store).iterdir() if path.suffix == ".safetensors"}

    def one_worker():
        pid = caught(None)
        if pid is not None:
            os.kill(pid, signal.SIGKILL)
            yield pid

    def node_of(address, sid):
        def end():
            for process in Path("/proc").glob("[0-9]*") if caught(address) is not None else ():
                try:
                    if (process / "stat").read_text().rpartition(")")[2].split()[3] == str(sid):
                        os.kill(int(process.name), signal.SIGKILL)
                        yield process.name
                except OSError:
                    pass
        return end

    def touch_one_row():
        X, y = DATA.X.copy(), DATA.y.copy()
        X[0], y[0] = 255 - X[0], (y[0] + 1) % 4
        return PrivateData(X, y, unit=DATA.unit)

    DATA, X = task(12 * n_teachers), images(100, seed=1)[0]
    quick = replace(NETS.recipe, steps=15)
    nets = Nets(recipe=quick, device="cpu", chunk=1)
    forests = Forests(estimator=FOREST.estimator, chunk=1)
    touched = int(shares_of(DATA, n_teachers).assignment[0])

    alone = replace(NETS, recipe=quick, chunk=1)
    undisturbed = fit_teachers(DATA, shares_of(DATA, n_teachers), alone, classes=CLASSES, seed=5)
    weights, votes = prints(undisturbed), undisturbed.vote(X).counts.tolist()
    files = {f"teachers-{k:06d}-{k:06d}.safetensors": alone.dumps(m) for (k,), m in undisturbed._models.items()}

    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    found = {}

    def compare(name, result, expected, expected_votes):
        content, counts, told = result
        found[name] = told | {"same": content == expected, "votes": counts == expected_votes}

    compare("quiet", taught(nets), weights, votes)
    found["votes over Ray"] = undisturbed.vote(X, executor=Ray()).counts.tolist() == votes
    changed, _, _ = taught(nets, data=touch_one_row())
    found["touched"] = touched
    found["changed"] = [k for k in range(n_teachers) if changed[k] != weights[k]]
    if soak:
        woods = fit_teachers(DATA, shares_of(DATA, n_teachers), FOREST, classes=CLASSES, seed=5)
        trees, forest_votes = prints(woods), woods.vote(X).counts.tolist()
        compare("worker", until_killed(nets, kill=one_worker), weights, votes)
        compare("node", until_killed(nets, kill=node_of(nodes[2], sessions[2])), weights, votes)
        compare("worker, forests", until_killed(forests, kill=one_worker), trees, forest_votes)
    compare("worker, store", until_killed(nets, store=stores[0], kill=one_worker), files, votes)
    compare("node, store", until_killed(nets, store=stores[1], kill=node_of(nodes[1], sessions[1])), files, votes)
    answer(**found)
"""


def test_teachers_on_a_cluster_that_dies_piece_by_piece(tmp_path, record_property):
    """One test, for a cluster takes ten seconds to start, and so do workers that load torch."""
    if importlib.util.find_spec("ray") is None:
        need("ray (pip install 'terrine[ray]')")
    (tmp_path / "traces").mkdir()
    cluster = Cluster(NODES, cpus=1)
    try:
        cluster.start()
        found = cluster.run(
            PROGRAM,
            folder=str(tmp_path / "traces"),
            stores=[str(tmp_path / "one"), str(tmp_path / "two")],
            sessions=cluster.sessions,
            nodes=NODES,
            n_teachers=N_TEACHERS,
            soak=SOAK,
        )
        for _ in range(100):  # what a dead node's raylet had just started ends by itself
            alive = [bool(session(sid)) for sid in cluster.sessions]
            if sum(alive) == 1:
                break
            time.sleep(0.1)
    finally:
        cluster.stop()
    assert alive == [True, *[False] * (len(NODES) - 1)]
    check_they_worked_on_all_nodes_and_are_the_same_as_in_one_process(found)
    check_one_row_reaches_one_teacher(found)
    check_deaths_in_the_middle_change_nothing(found)
    record_property("teachers", N_TEACHERS)
    record_property("killed workers", amount(2, soak=3))
    record_property("killed nodes", len(NODES) - 1)


def check_they_worked_on_all_nodes_and_are_the_same_as_in_one_process(found):
    quiet = dict(found["quiet"])
    assert len(quiet.pop("nodes")) > 1
    assert quiet == {"starts": N_TEACHERS, "killed": 0, "same": True, "votes": True}
    # How many tasks a node takes in one run is up to Ray: a worker that starts slowly may find none left.
    runs = [told["nodes"] for told in found.values() if isinstance(told, dict)]
    assert set().union(*runs) == set(NODES)
    assert found["votes over Ray"]


def check_one_row_reaches_one_teacher(found):
    assert found["changed"] == [found["touched"]]


def check_deaths_in_the_middle_change_nothing(found):
    for name in (*amount((), soak=("worker", "node", "worker, forests")), "worker, store", "node, store"):
        told = found[name]
        assert told["killed"] >= 1, name
        assert told["starts"] > N_TEACHERS, name  # it was in the middle: what ran there began again elsewhere
        assert told["same"], name
        assert told["votes"], name
    assert found["node, store"]["nodes"] == [HEAD, SECOND]
