"""What reading a whole cluster costs, beside the typed client and kubectl.

A lab of 1,000 nodes and 30,000 pods serves from a process of its own; each reader runs in a fresh process, in turn,
and its wall time, CPU time and peak memory are those of that process. `bytes` fetches the same pages and decodes
nothing: what is left above it is the reader's own cost.

Run: python tests/benchmarks/snapshot.py [ROUNDS]
"""

# ruff: noqa: PLC0415 - each reader's process loads its own client and no other

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SCENARIO = "large"
ROUNDS = 3
PAGE = 500


@dataclass(frozen=True)
class Measured:
    """One reader's run: seconds of wall and CPU time, and MB at the peak."""

    wall: float
    cpu: float
    memory: float
    pods: int


def serve(directory: Path) -> None:
    """Run the lab until the parent closes our standard input."""
    from rollout.lab.lab import Lab
    from rollout.lab.scenario import load_scenario

    began = time.monotonic()
    with Lab.start(load_scenario(SCENARIO), directory=directory) as lab:
        print(json.dumps({"kubeconfig": str(lab.kubeconfig), "seconds": time.monotonic() - began}), flush=True)
        sys.stdin.read()


def read_selectively(kubeconfig: Path) -> int:
    """What rollout does."""
    from rollout.adapters.kube.api import connect
    from rollout.gather.cluster.snapshot import read_snapshot

    return len(read_snapshot(connect(kubeconfig, None)).pods)


def read_bytes(kubeconfig: Path) -> int:
    """The same pages, undecoded."""
    from rollout.adapters.kube.api import connect

    api = connect(kubeconfig, None)
    return sum(page.count(b'"nodeName"') for path in ("/api/v1/nodes", "/api/v1/pods") for page in api.pages(path))


def read_typed(kubeconfig: Path) -> int:
    """Nodes and pods as the client library's models, by pages; budgets and the rest are not even read."""
    from kubernetes import client, config

    config.load_kube_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    api = client.CoreV1Api()
    nodes = list(_typed_pages(api.list_node))
    return len(list(_typed_pages(api.list_pod_for_all_namespaces))) if nodes else 0


def _typed_pages(read: Callable[..., object]) -> Iterator[object]:
    token = None
    while True:
        page: object = read(limit=PAGE, _continue=token)
        yield from page.items  # type: ignore[attr-defined]
        token = page.metadata._continue  # type: ignore[attr-defined]
        if not token:
            return


READERS: dict[str, Callable[[Path], int]] = {
    "rollout": read_selectively,
    "bytes": read_bytes,
    "typed": read_typed,
}


@contextmanager
def lab(directory: Path) -> Iterator[Path]:
    """The lab in its own process; its kubeconfig."""
    command = [sys.executable, __file__, "serve", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ready = json.loads(process.stdout.readline())
            print(f"lab ready after {ready['seconds']:.1f} s, {_memory(process.pid):.0f} MB")
            yield Path(ready["kubeconfig"])
            print(f"lab at the end: {_memory(process.pid):.0f} MB")
        finally:
            process.stdin.close()


def _memory(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def measure(command: list[str], kubeconfig: Path) -> Measured:
    """Run a command to its end; it prints the number of pods, or the pods themselves."""
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        process = subprocess.Popen(command, stdout=output, env={**os.environ, "KUBECONFIG": str(kubeconfig)})
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{command} ended with {process.returncode}")
        output.seek(0)
        # Line by line: a child's peak counts from what its parent held when it began.
        pods = sum(int(line) if line.strip().isdigit() else b'"nodeName"' in line for line in output)
    return Measured(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, pods)


def commands() -> dict[str, list[str]]:
    """Every reader's command."""
    ours = {name: [sys.executable, __file__, name] for name in READERS}
    kubectl = shutil.which("kubectl", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    return {**ours, "kubectl": [kubectl, "get", "pods", "-A", "-o", "json"]} if kubectl else ours


def report(runs: dict[str, list[Measured]]) -> None:
    """Medians, and their ratios to ours."""
    ours = runs["rollout"]
    print(f"{'':10}{'wall s':>10}{'CPU s':>10}{'peak MB':>10}{'pods':>10}{'wall x':>10}{'CPU x':>10}{'MB x':>10}")
    for name, measured in runs.items():
        figures = [
            (statistics.median(getattr(run, field) for run in some), field)
            for some in (measured,)
            for field in ("wall", "cpu", "memory")
        ]
        base = [statistics.median(getattr(run, field) for run in ours) for _, field in figures]
        ratios = "".join(f"{figure / own:10.2f}" for (figure, _), own in zip(figures, base, strict=True))
        written = f"{figures[0][0]:10.2f}{figures[1][0]:10.2f}{figures[2][0]:10.0f}"
        print(f"{name:10}{written}{measured[-1].pods:10}{ratios}")


def main() -> None:
    """Serve, read, or run the whole comparison."""
    match sys.argv[1:]:
        case ["serve", directory]:
            serve(Path(directory))
        case [name] if name in READERS:
            print(READERS[name](Path(os.environ["KUBECONFIG"])))
        case _:
            parser = argparse.ArgumentParser(description=__doc__)
            parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
            rounds = parser.parse_args().rounds
            runs: dict[str, list[Measured]] = {name: [] for name in commands()}
            with tempfile.TemporaryDirectory() as directory, lab(Path(directory)) as kubeconfig:
                for _ in range(rounds):
                    for name, command in commands().items():
                        runs[name].append(measure(command, kubeconfig))
            report(runs)


if __name__ == "__main__":
    main()
