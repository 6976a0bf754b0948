"""A Ray cluster on loopback addresses: each node is a session of processes, ended one process id at a time."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

NET = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}"  # test processes beside each other have a cluster each
HEAD, SECOND, THIRD = (f"{NET}.{last}" for last in (2, 3, 4))


def session(sid: int) -> list[int]:
    """The live processes of a session."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(own) == sid and state != "Z":
            found.append(int(folder.name))
    return found


def end(sid: int) -> None:
    for _ in range(50):
        pids = session(sid)
        if not pids:
            return
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.1)


class Cluster:
    """Nodes on these addresses, the head first, with their own token, port and folder."""

    def __init__(self, nodes: tuple[str, ...] = (HEAD, SECOND), *, cpus: int = 2) -> None:
        self.nodes, self.cpus = nodes, cpus
        self.folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # short: socket names lie under it
        token = self.folder / "token"
        token.write_text(secrets.token_hex(32))
        token.chmod(0o600)
        ray = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token), "RAY_USAGE_STATS_ENABLED": "0"}
        ray |= {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "3"}  # a death is seen soon
        ours = ("RAY_", "OMP_")  # how many threads a task has is for Ray to say
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)} | ray
        with socket.socket() as free:
            free.bind((HEAD, 0))
            self.port = free.getsockname()[1]
        self.address = f"{HEAD}:{self.port}"
        self.sessions: list[int] = []
        self.starting: list[subprocess.Popen[bytes]] = []

    def start_node(self, *where: str) -> None:
        few = [f"--num-cpus={self.cpus}", "--object-store-memory=80000000", "--include-log-monitor=false"]
        own = f"--temp-dir={self.folder / str(len(self.sessions))}"  # together they would take the same socket names
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", *where, *few, own]
        with (self.folder / "log").open("ab") as log:
            said = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
            process = subprocess.Popen(command, env=self.environment, start_new_session=True, cwd=self.folder, **said)
        self.sessions.append(process.pid)
        self.starting.append(process)

    def start(self) -> None:
        head = ["--head", f"--node-ip-address={HEAD}", f"--port={self.port}"]
        self.start_node(*head, "--include-dashboard=false")
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and self.starting[0].poll() in (None, 0):
            with socket.socket() as probe:
                if probe.connect_ex((HEAD, self.port)) == 0:
                    break
            time.sleep(0.1)
        for node in self.nodes[1:]:
            self.start_node(f"--address={self.address}", f"--node-ip-address={node}")
        codes = [process.wait(timeout=120) for process in self.starting]
        assert codes == [0] * len(self.nodes), (self.folder / "log").read_text()[-3000:]

    def stop(self) -> None:
        for sid in self.sessions:
            end(sid)
        for process in self.starting:
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, program: str, **values: object) -> Any:
        return run(program, self.environment, self.folder, address=self.address, **values)


def run(program: str, environment: dict[str, str], place: Path, **values: object) -> Any:
    """What a program says by `answer`; it finds `values` and these modules. (Ray writes on its standard output.)"""
    start = f"""
        import json, os, signal, sys, time
        from pathlib import Path
        import numpy as np
        import ray
        sys.path.insert(0, {str(Path(__file__).parents[1])!r})
        from terrine.executors import Ray

        globals().update(json.loads({json.dumps(values)!r}))

        def answer(**what):
            Path({str(place / "answer.json")!r}).write_text(json.dumps(what))
    """
    script = place / "program.py"
    script.write_text(textwrap.dedent(start) + textwrap.dedent(program))
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((place / "answer.json").read_text())
