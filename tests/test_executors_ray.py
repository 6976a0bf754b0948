"""Ray: a cluster of two nodes on loopback addresses, dead workers, a dead node, and what is left afterwards.

Programs run the executor as a user's would.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import shutil
import tempfile
from pathlib import Path

import pytest
from tests.conftest import need
from tests.ray_cluster import SECOND, Cluster, run, session


@pytest.fixture(autouse=True)
def _ray():
    if importlib.util.find_spec("ray") is None:
        need("ray (pip install 'terrine[ray]')")


def test_a_cluster_of_two_nodes(tmp_path):
    """One test, for a cluster takes ten seconds to start."""
    cluster = Cluster()
    try:
        cluster.start()
        (tmp_path / "maps").mkdir()
        found = several_maps(cluster, tmp_path / "maps")
        check_forty_tasks_ran_over_both_nodes_in_order(found)
        check_a_killed_worker_is_replaced_up_to_retries(found)
        check_an_exception_comes_at_once_and_as_it_is(found)
        check_what_no_node_has_is_said_and_not_waited_for(found)
        assert found["connected"] is True  # a connection that was there stays
        (tmp_path / "death").mkdir()
        check_a_node_that_dies_in_the_middle_changes_no_result(cluster, tmp_path / "death")
    finally:
        cluster.stop()


def several_maps(cluster, folder):
    """One program for all, for its workers take seconds to wake up."""
    program = """
        folder = Path(folder)

        def work(task, shared):
            time.sleep(0.05)
            return task * int(shared.sum()), ray.get_runtime_context().get_node_id(), os.environ["OMP_NUM_THREADS"]

        def die_once(task, shared):
            marker = folder / f"died{task}"
            if task in (1, 5) and not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            return task * task

        def die_always(task, shared):
            with (folder / "tries").open("a") as file:
                file.write(f"{task} ")
            if task == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return task

        def fail(task, shared):
            if task == 1:
                raise KeyError("own message")
            time.sleep(100)

        def caught(function, **settings):
            start = time.monotonic()
            try:
                list(Ray(**settings).map(function, range(10), retries=1))
            except Exception as error:
                return type(error).__name__, str(error), time.monotonic() - start

        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        taken, seen = [], []
        tasks = (taken.append(task) or task for task in range(40))
        results = Ray().map(work, tasks, shared=np.ones(200_000), progress=seen.append)
        before = len(taken)
        first = next(results)
        ahead = len(taken)
        values, nodes, threads = zip(first, *results)
        squares = list(Ray().map(die_once, range(10), retries=1))
        answer(
            values=values, nodes=nodes, threads=threads, seen=seen, taken=[before, ahead], squares=squares,
            death=caught(die_always), failure=caught(fail), no_gpu=caught(fail, num_gpus_per_task=1),
            tries=(folder / "tries").read_text().split().count("2"), connected=ray.is_initialized(),
        )
    """
    return cluster.run(program, folder=str(folder))


def check_forty_tasks_ran_over_both_nodes_in_order(found):
    assert found["values"] == [200_000 * task for task in range(40)]
    assert len(set(found["nodes"])) == 2
    assert set(found["threads"]) == {"1"}
    assert found["seen"] == list(range(1, 41))
    before, ahead = found["taken"]
    assert before == 0
    assert ahead <= 8  # twice four CPUs


def check_a_killed_worker_is_replaced_up_to_retries(found):
    assert found["squares"] == [task * task for task in range(10)]
    kind, message, _ = found["death"]
    assert kind == "WorkerError"
    assert "Task 2 did not finish: 2 worker(s) died on it in a row" in message
    assert found["tries"] == 2


def check_an_exception_comes_at_once_and_as_it_is(found):
    kind, message, seconds = found["failure"]
    assert (kind, message) == ("KeyError", "'own message'")
    assert seconds < 60  # the others sleep for 100 s


def check_what_no_node_has_is_said_and_not_waited_for(found):
    kind, message, _ = found["no_gpu"]
    assert kind == "InputError"
    assert message == (
        "No node of the Ray cluster has 1 CPU and 1 GPU, which each task needs (nodes: 2). "
        "Add such a node, or lower num_cpus_per_task and num_gpus_per_task."
    )


def check_a_node_that_dies_in_the_middle_changes_no_result(cluster, folder):
    """It ends the second node while a task runs there."""
    program = """
        folder = Path(folder)

        def work(task, shared):
            address = ray.util.get_node_ip_address()
            start = folder / f"{task} {address} {time.time_ns()}"
            start.touch()
            time.sleep(0.2 + 0.05 * (task % 5))  # out of step
            start.rename(start.with_name(start.name + " done"))
            return task, address

        def kill(done):
            now = time.time_ns()
            running = [path.name.split() for path in folder.iterdir()]
            if any(len(words) == 3 and words[1] == second and now - int(words[2]) < 1.5e8 for words in running):
                for process in Path("/proc").glob("[0-9]*"):
                    try:
                        if (process / "stat").read_text().rpartition(")")[2].split()[3] == str(victim):
                            os.kill(int(process.name), signal.SIGKILL)
                    except OSError:
                        pass

        results = list(Ray(address=address).map(work, range(40), progress=kill))
        answer(tasks=[task for task, _ in results], starts=len(list(folder.iterdir())), connected=ray.is_initialized())
    """
    found = cluster.run(program, victim=cluster.sessions[1], second=SECOND, folder=str(folder))
    assert session(cluster.sessions[1]) == []
    assert found["tasks"] == list(range(40))
    assert found["starts"] > 40  # what ran there began again elsewhere
    assert found["connected"] is False  # it came and went


def test_a_local_ray_comes_and_goes_with_the_map():
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "OMP_"))}
    environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token"), "RAY_TMPDIR": str(folder)}
    (folder / "token").write_text(secrets.token_hex(32))
    program = """
        def add(task, shared):
            return task + shared

        def processes():
            found = []
            for folder in Path("/proc").glob("[0-9]*"):
                try:
                    if home.encode() in (folder / "cmdline").read_bytes() and folder.name != str(os.getpid()):
                        found.append(folder.name)
                except OSError:
                    pass
            return found

        results = Ray(address="local").map(add, range(20), shared=5)
        first = next(results)
        during = len(processes())
        values = [first, *results]
        for _ in range(100):
            after = len(processes())
            if not after:
                break
            time.sleep(0.1)
        answer(values=values, during=during, after=after)
    """
    try:
        found = run(program, environment, folder, home=f"{folder}/")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert found["values"] == list(range(5, 25))
    assert found["during"] > 0
    assert found["after"] == 0
