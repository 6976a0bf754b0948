"""Run the lines of a plan side by side, so many at once, until the time is up.

    python experiments/side_by_side.py PLAN --logs FOLDER --at-once 12 --seconds 560

A line of PLAN is `[FILE ...] | command`: it starts when all of these files are there; an earlier line goes first. What
a command prints goes to a file in FOLDER. What is not done when the time is up is ended: a battery's cell is a file, so
that the same plan can be run again.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path


def main() -> None:
    parser = argparse.ArgumentParser(description="Commands side by side")
    parser.add_argument("plan", type=Path)
    parser.add_argument("--logs", type=Path, required=True)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3600.0)
    given = parser.parse_args()
    given.logs.mkdir(parents=True, exist_ok=True)
    start, running = time.monotonic(), {}
    waiting = [line.split("|", 1) for line in given.plan.read_text().splitlines() if "|" in line]
    numbered = [(k, first.split(), command.strip()) for k, (first, command) in enumerate(waiting)]

    def say(text: str) -> None:
        print(f"{time.monotonic() - start:6.0f} s  {text}", flush=True)

    while numbered or running:
        for k, (process, command, began) in list(running.items()):
            if (code := process.poll()) is not None:
                del running[k]
                say(f"{'done' if code == 0 else f'FAILED ({code})'} in {time.monotonic() - began:.0f} s: {command}")
                if code:
                    say((given.logs / f"{k}.log").read_text()[-1500:])
        for one in list(numbered):
            k, first, command = one
            if len(running) < given.at_once and all(Path(path).exists() for path in first):
                numbered.remove(one)
                with (given.logs / f"{k}.log").open("w") as log:
                    process = subprocess.Popen(command, shell=True, stdout=log, stderr=subprocess.STDOUT)
                running[k] = (process, command, time.monotonic())
        if time.monotonic() - start > given.seconds or (numbered and not running):
            break
        time.sleep(0.5)
    for process, command, _ in running.values():
        process.terminate()
        say(f"ended: {command}")
    for _, first, command in numbered:
        say(f"not begun (waits for {first}): {command}")


if __name__ == "__main__":
    main()
