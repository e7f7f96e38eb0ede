"""Verdicts on which nodes are meant: whether any is, each pool has some, and each node is in one. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from rollout.gather.doctor.checks import Check, CheckName, passed, warned
from rollout.model.text import counted, shortened

_ALL_EXCLUDED_FIX = "Exclude fewer nodes: --exclude names all that are selected."
_NO_NODE_FIX = "Compare its selector with: kubectl get nodes --show-labels, and with the pools above it."
_IN_NONE_FIX = "They go last, by the rules outside of [[pool]]: add a pool for them, unless that is meant."


def selection_check(subject: str, selected: int, nodes: int) -> Check:
    """Whether any node is left, of those that `subject` chooses, after `--exclude`."""
    message = f"{selected} of {counted(nodes, 'node')} are selected"
    if selected:
        return passed(CheckName.NODES, subject, message)
    return warned(CheckName.NODES, subject, f"{message}: no host is asked", _ALL_EXCLUDED_FIX)


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
