"""How long `rollout --help` takes, beside a bare Python and kubectl, and what it imports on the way.

Ends with 1 where a client library, or one of the lab's servers, is imported for a help text.

Run: python tests/benchmarks/startup.py [ROUNDS]
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 15
AIM_SECONDS = 0.25
FORBIDDEN = (
    *("kubernetes", "paramiko", "urllib3", "requests", "cryptography", "ansible", "ansible_runner"),
    *("aiohttp", "asyncssh"),
)
SHOWN = 12

INSPECT = """
import json, sys
sys.argv = ["rollout", "--help"]
try:
    from rollout.cli.main import main
    main()
except SystemExit:
    pass
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def command(name: str) -> str:
    """Where a program is: beside this Python, else on PATH."""
    found = shutil.which(name, path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if found is None:
        raise SystemExit(f"{name} is not installed")
    return found


def seconds(arguments: list[str]) -> float:
    """Wall time of one run."""
    began = time.perf_counter()
    subprocess.run(arguments, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def imported() -> list[str]:
    """Every module that `rollout --help` loads."""
    arguments = [sys.executable, "-c", INSPECT]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    modules: list[str] = json.loads(done.stderr.splitlines()[-1])
    return modules


def costly() -> list[tuple[float, str]]:
    """The imports that take longest in themselves, in milliseconds."""
    arguments = [sys.executable, "-X", "importtime", "-c", INSPECT]
    done = subprocess.run(arguments, check=True, capture_output=True, text=True)
    lines = [line.removeprefix("import time:").split("|") for line in done.stderr.splitlines() if "|" in line]
    own = [(int(line[0]) / 1000, line[2].strip()) for line in lines if line[0].strip().isdigit()]
    return sorted(own, reverse=True)[:SHOWN]


def main() -> None:
    """Measure in turn, so that a busy moment meets all of them, and report medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rounds", type=int, nargs="?", default=ROUNDS)
    rounds = parser.parse_args().rounds
    measured: dict[str, list[float]] = {}
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "rollout --help": [command("rollout"), "--help"],
        "rollout apply --help": [command("rollout"), "apply", "--help"],
        "kubectl --help": [command("kubectl"), "--help"],
    }
    for _ in range(rounds):
        for name, arguments in commands.items():
            measured.setdefault(name, []).append(seconds(arguments))
    for name, times in measured.items():
        print(f"{name:24}{statistics.median(times):8.3f} s   (fastest {min(times):.3f}, slowest {max(times):.3f})")
    print(f"aim for rollout --help: {AIM_SECONDS} s")
    modules = imported()
    print(f"{len(modules)} modules; the costliest by themselves:")
    for cost, name in costly():
        print(f"  {cost:6.1f} ms  {name}")
    unwanted = [name for name in FORBIDDEN if name in modules]
    print(f"client libraries among them: {', '.join(unwanted) or 'none'}")
    raise SystemExit(1 if unwanted else 0)


if __name__ == "__main__":
    main()
