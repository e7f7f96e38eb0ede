"""Verdicts on the settings file's pools: whether each has nodes, and whether each node is in one. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from rollout.gather.doctor.checks import Check, CheckName, passed, warned
from rollout.model.text import counted, shortened

_NO_NODE_FIX = "Compare its selector with: kubectl get nodes --show-labels, and with the pools above it."
_IN_NONE_FIX = "They go last, by the rules outside of [[pool]]: add a pool for them, unless that is meant."


def pool_checks(members: Mapping[str, Sequence[str]], default: str) -> Iterator[Check]:
    """One verdict a pool; `members` are its nodes, `default` is the pool of the nodes that are in no other."""
    for pool, nodes in members.items():
        if pool != default and nodes:
            yield passed(CheckName.POOL, pool, counted(len(nodes), "node"))
        elif pool != default:
            message = "no selected node belongs to it: none matches, or an earlier pool has them"
            yield warned(CheckName.POOL, pool, message, _NO_NODE_FIX)
        elif nodes:
            message = f"{counted(len(nodes), 'node')} in no pool: {shortened(nodes)}"
            yield warned(CheckName.POOL, pool, message, _IN_NONE_FIX)
