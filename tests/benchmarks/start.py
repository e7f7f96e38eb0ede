"""How long the program takes to start: until it has printed help, and until its first I/O.

The first I/O of a command is its connection to an API server, which accepts it and answers nothing.
Seconds are the least of the runs, `x` is the ratio to `python -c pass`, and `own` is what remains
without Python's own start. A second checkout, such as one of the version before a change, is
measured beside the first, and `before` is the ratio of its CPU to the first's.

Run: python tests/benchmarks/start.py [--runs 15] [--before DIRECTORY]
"""

import argparse
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

HERE = Path(__file__).parents[2]
HELP = (("--help",), ("status", "--help"), ("plan", "--help"))
COMMANDS = (
    ("status",),
    ("plan",),
    ("apply", "--yes"),
    ("resume", "--yes"),
    ("operate", "--once"),
    ("doctor",),
)
OTHERS = (("kubectl", "--help"), ("terraform", "--help"), ("helm", "--help"))
KUBECONFIG = """\
apiVersion: v1
kind: Config
current-context: here
contexts: [{{name: here, context: {{cluster: here, user: me}}}}]
clusters: [{{name: here, cluster: {{server: "http://127.0.0.1:{port}"}}}}]
users: [{{name: me, user: {{token: none}}}}]
"""


@dataclass(frozen=True)
class Took:
    """Seconds of wall, and of CPU."""

    wall: float
    cpu: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--before", type=Path)
    asked = parser.parse_args()
    checkouts = [HERE, *([asked.before.resolve()] if asked.before else [])]
    with tempfile.TemporaryDirectory() as home:
        bare = least(asked.runs, partial(until_end, (sys.executable, "-c", "pass"), {}))
        print(f"{'':<34}{'wall s':>8}{'CPU s':>8}{'own s':>8}{'x':>7}{'before':>8}")
        show("python -c pass", [bare], bare)
        for other in OTHERS:
            if shutil.which(other[0]):
                show(" ".join(other), [least(asked.runs, partial(until_end, other, {}))], bare)
        for words in (*HELP, *COMMANDS):
            command = (sys.executable, "-m", "rollout", *words)
            measure = until_end if words in HELP else until_connected
            title = f"rollout {' '.join(words)}{'' if words in HELP else ', first I/O'}"
            variables = [environment(checkout, Path(home)) for checkout in checkouts]
            took = [least(asked.runs, partial(measure, command, item)) for item in variables]
            show(title, took, bare)


def environment(checkout: Path, home: Path) -> Mapping[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(checkout)}


def least(runs: int, measure: Callable[[], Took]) -> Took:
    """The least, because other work on the machine only adds. The first run fills the caches."""
    measure()
    took = [measure() for _ in range(runs)]
    return Took(min(item.wall for item in took), min(item.cpu for item in took))


def until_end(words: Sequence[str], variables: Mapping[str, str]) -> Took:
    before = children_cpu()
    began = time.monotonic()
    variables = variables or os.environ
    # Not in a checkout, which Python would import before PYTHONPATH.
    subprocess.run(words, env=variables, cwd="/", capture_output=True, check=False)
    return Took(time.monotonic() - began, children_cpu() - before)


def until_connected(words: Sequence[str], variables: Mapping[str, str]) -> Took:
    """Start the command, and end it once it has connected to the API server."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        file = Path(variables["HOME"]) / "kubeconfig"
        file.write_text(KUBECONFIG.format(port=server.getsockname()[1]))
        before = children_cpu()
        began = time.monotonic()
        with subprocess.Popen(
            words,
            env={**variables, "KUBECONFIG": str(file)},
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process:
            try:
                server.accept()[0].close()
                wall = time.monotonic() - began
            finally:
                process.kill()
        return Took(wall, children_cpu() - before)


def children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def show(title: str, took: Sequence[Took], bare: Took) -> None:
    ours = took[0]
    before = f"{took[1].cpu / ours.cpu:>8.2f}" if len(took) > 1 else ""
    print(
        f"{title:<34}{ours.wall:>8.3f}{ours.cpu:>8.3f}{ours.wall - bare.wall:>8.3f}"
        f"{ours.wall / bare.wall:>7.1f}{before}",
        flush=True,
    )


if __name__ == "__main__":
    main()
