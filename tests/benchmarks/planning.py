"""What planning 2,000 nodes and 60,000 pods takes, after the snapshot: seconds, and megabytes above it.

Run: python tests/benchmarks/planning.py [NODES PODS_PER_NODE AT_ONCE]
"""

import resource
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from rollout.planning.plan import build_plan
from tests.planning.random_clusters import random_cluster


def main() -> None:
    """Plan one large cluster, and print what it took."""
    nodes, pods, at_once = (int(each) for each in sys.argv[1:4]) if len(sys.argv) > 1 else (2000, 30, 50)
    made = random_cluster(1, nodes, pods, at_once)
    before = _peak()
    began = time.perf_counter()
    plan = build_plan(made)
    seconds = time.perf_counter() - began
    summary = plan.summary
    print(f"{nodes} nodes, {len(made.snapshot.pods)} pods, {len(made.snapshot.budgets)} budgets, {at_once} at once")
    print(f"planned in {seconds:.2f} s, with {_peak() - before:.0f} MB above the {before:.0f} MB of the snapshot")
    print(f"{summary.waves} waves, at least {summary.waves_lower_bound} needed; {len(plan.blockers)} blockers")


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
