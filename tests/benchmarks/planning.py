"""What planning 2,000 nodes and 60,000 pods takes after the snapshot: seconds of CPU, and megabytes above it.

Each case is planned in a process of its own. `free` is a cluster in which nothing but the limit keeps nodes apart,
`demanding` one in which most workloads keep their pods apart, spread them strictly or are drawn to a zone.

Run: python tests/benchmarks/planning.py [NODES PODS_PER_NODE]
"""

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.model.cluster import ZONE_LABEL, OwnerRef
from rollout.model.policy import Policy
from rollout.model.quantity import Count
from rollout.planning.plan.build import PlanInputs, build_plan
from tests.planning.random_clusters import random_cluster

HALF, ALL = Count(50, percent=True), Count(100, percent=True)
POLICIES: Mapping[str, Policy] = {
    "1": Policy(Count(1)),
    "50": Policy(Count(50)),
    "500": Policy(Count(500)),
    "50%": Policy(HALF),
    "100%": Policy(ALL),
    "100%, by zone": Policy(ALL, spread_by=ZONE_LABEL),
    "100%, canary 50": Policy(ALL, canary=50),
    "100%, ramp 1,10%,25%": Policy(ALL, ramp=(Count(1), Count(10, percent=True), Count(25, percent=True))),
}
CLUSTERS = ("usual", "free", "demanding")


def cluster(kind: str, nodes: int, pods: int) -> PlanInputs:
    """A cluster of that kind."""
    made = random_cluster(1, nodes, pods, 1, demanding=kind == "demanding")
    if kind != "free":
        return made
    alone = tuple(
        replace(pod, owner=OwnerRef("apps/v1", "ReplicaSet", pod.name, pod.uid)) for pod in made.snapshot.pods
    )
    return replace(made, snapshot=replace(made.snapshot, pods=alone, budgets=()))


def measure(kind: str, policy: str, nodes: int, pods: int) -> dict[str, float]:
    """Plan one cluster by one policy."""
    made = replace(cluster(kind, nodes, pods), policy=POLICIES[policy])
    before, began = _peak(), time.process_time()
    plan = build_plan(made)
    seconds, summary = time.process_time() - began, plan.summary
    return {
        "seconds": seconds,
        "before": before,
        "more": _peak() - before,
        "waves": summary.waves,
        "bound": summary.waves_lower_bound,
    }


def main() -> None:
    """Measure every policy on every kind of cluster."""
    if sys.argv[1:2] == ["one"]:
        kind, policy, nodes, pods = sys.argv[2:]
        print(json.dumps(measure(kind, policy, int(nodes), int(pods))))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nodes", type=int, nargs="?", default=2000)
    parser.add_argument("pods", type=int, nargs="?", default=30)
    asked = parser.parse_args()
    size = f"{asked.nodes} nodes, {asked.pods} pods each"
    print(f"{size}: seconds of CPU, MB above the snapshot's, waves and their lower bound")
    print(f"{'cluster':<11}{'--max-unavailable':<22}{'CPU s':>7}{'MB':>6}{'waves':>7}{'bound':>7}")
    for kind in CLUSTERS:
        for policy in POLICIES:
            command = [sys.executable, __file__, "one", kind, policy, str(asked.nodes), str(asked.pods)]
            found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            figures = f"{found['seconds']:>7.2f}{found['more']:>6.0f}{found['waves']:>7}{found['bound']:>7}"
            print(f"{kind:<11}{policy:<22}{figures}", flush=True)


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
