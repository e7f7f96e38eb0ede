"""Documents as this version of the program writes them, kept for the versions that follow.

Run at each release: `python -m tests.kept.write 1.2.0`, and commit the folder. What it holds is written by the real
program on a lab, and stays as it is: `test_kept.py` has every later version read it. `--program FOLDER` is another
version's source, for documents that nobody kept in time.
"""

import argparse
import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rollout.lab.api.resources import CONFIGMAPS, NODES
from rollout.lab.hostplan import scale
from rollout.lab.lab import Lab
from rollout.lab.scenario import load_scenario
from rollout.model import marks
from tests.ended import end_of, start
from tests.server.serving import Server

HERE = Path(__file__).parent
NODES_IN_ALL = 4
RULES = ("--control-plane", "exclude", "--max-unavailable", "2", "--health-checks", "1")


class Writer:
    """Runs the program of one version, and keeps what it has written."""

    def __init__(self, folder: Path, program: Path | None) -> None:
        self._folder = folder
        self._environment = {"PYTHONPATH": str(program)} if program else {}
        folder.mkdir(exist_ok=True)

    def start(self, lab: Lab, *arguments: str) -> "subprocess.Popen[str]":
        home = lab.directory.parent / "home"
        home.mkdir(exist_ok=True)
        return start(home, {**lab.environment, **self._environment}, arguments)

    def keep(self, name: str, content: bytes | Any) -> None:
        written = content if isinstance(content, bytes) else f"{json.dumps(content, indent=1)}\n".encode()
        (self._folder / name).write_bytes(written)

    def on_a_lab(self, scenario: str, take: Callable[["Writer", Lab], None]) -> None:
        scaled = scale(load_scenario(scenario), NODES_IN_ALL)
        with TemporaryDirectory() as directory, Lab.start(scaled, directory=Path(directory) / "lab", speed=30) as lab:
            take(self, lab)


def config_map(lab: Lab, name: str) -> dict[str, Any] | None:
    found = lab.call(lambda: lab.store.get(CONFIGMAPS, name, "kube-system"))
    if found is None:
        return None
    meta = {key: value for key, value in found["metadata"].items() if key in ("name", "namespace", "annotations")}
    return {**found, "metadata": meta}


def begun_nodes(lab: Lab) -> dict[str, dict[str, str]]:
    """Our annotations, by Node."""
    nodes = lab.call(lambda: list(lab.store.items(NODES)))
    ours = {
        node["metadata"]["name"]: {
            name: value
            for name, value in node["metadata"].get("annotations", {}).items()
            if name.startswith(marks.PREFIX)
        }
        for node in nodes
    }
    return {name: annotations for name, annotations in ours.items() if annotations}


def plan_and_record(writer: Writer, lab: Lab) -> None:
    """A saved plan; and what a run leaves that is killed with a drained node."""
    home = lab.directory.parent / "home"
    saved = end_of(writer.start(lab, "plan", "--out", "plan.json", *RULES))
    assert saved.code == 0, saved.stderr
    writer.keep("plan.json", (home / "plan.json").read_bytes())
    process = writer.start(lab, "apply", "--yes", "-o", "json", *RULES)
    assert process.stdout is not None
    next(line for line in process.stdout if '"drained"' in line)
    process.kill()
    process.communicate()
    writer.keep("record.json", config_map(lab, marks.LEASE_NAME))
    writer.keep("marks.json", begun_nodes(lab))


def journal_and_memory(writer: Writer, lab: Lab) -> None:
    """A run in which nodes come back on their old version."""
    ended = end_of(writer.start(lab, "apply", "--yes", "-o", "json", *RULES, "--max-failures", "2"))
    assert ended.code == 4, ended.stderr
    (journal,) = (lab.directory.parent / "home" / ".local" / "state" / "rollout" / "runs").glob("*.jsonl")
    writer.keep("journal.jsonl", journal.read_bytes())
    if memory := config_map(lab, marks.MEMORY_NAME):
        writer.keep("memory.json", memory)


def slots(writer: Writer, lab: Lab) -> None:
    """A host that holds a slot; nothing of versions that serve no FleetLock."""
    if end_of(writer.start(lab, "fleetlock", "--help")).code != 0:
        return
    server = Server(lab, lab.directory.parent / "home", ())
    server.hear(writer.start(lab, "fleetlock", "--listen", f"127.0.0.1:{server.port}"))
    try:
        server.await_grant("worker-1")
        writer.keep("slots.json", config_map(lab, marks.SLOTS_NAME))
    finally:
        server.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", help="of the version: its folder beside this file")
    parser.add_argument("--program", type=Path, help="the source of another version")
    given = parser.parse_args()
    writer = Writer(HERE / given.name, given.program)
    writer.on_a_lab("default", plan_and_record)
    writer.on_a_lab("rollback", journal_and_memory)
    writer.on_a_lab("default", slots)


if __name__ == "__main__":
    main()
