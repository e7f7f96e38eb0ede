"""The phases of a node's run, as one table.

Everything that decides where a node may go next is here; whatever is not in the table is a defect and raises. A phase
is written on the Node before the act that it names, so that a crash at any point leaves enough to go on from:

    pending    nothing touched yet
    cordoned   unschedulable, by us or before us
    draining   its pods are being evicted
    drained    nothing is left on it that has to go
    rebooting  the reboot has been, or is about to be, asked for
    booted     the host is up with another boot id
    ready      the kubelet of that boot reports Ready
    done       proven, and back in service
    failed     ended; its last result says how

Two ways lead back to draining: pods have come to a drained node, or to one whose host still answers in the boot from
before, and it is not asked to reboot under them.
"""

from collections.abc import Mapping

from rollout.model.progress import Phase

NEXT: Mapping[Phase, frozenset[Phase]] = {
    Phase.PENDING: frozenset({Phase.CORDONED, Phase.FAILED}),
    Phase.CORDONED: frozenset({Phase.DRAINING, Phase.FAILED}),
    Phase.DRAINING: frozenset({Phase.DRAINED, Phase.FAILED}),
    Phase.DRAINED: frozenset({Phase.REBOOTING, Phase.DRAINING, Phase.FAILED}),
    Phase.REBOOTING: frozenset({Phase.BOOTED, Phase.DRAINING, Phase.FAILED}),
    Phase.BOOTED: frozenset({Phase.READY, Phase.FAILED}),
    Phase.READY: frozenset({Phase.DONE, Phase.FAILED}),
    Phase.DONE: frozenset(),
    Phase.FAILED: frozenset(),
}

# Until its reboot is asked for, a node can be given back as it was.
BEFORE_REBOOT = frozenset({Phase.PENDING, Phase.CORDONED, Phase.DRAINING, Phase.DRAINED})
# From here on it may be in another boot, and has to be proven.
AFTER_REBOOT = frozenset({Phase.REBOOTING, Phase.BOOTED, Phase.READY})


class IllegalTransitionError(AssertionError):
    """A step led where the table does not: a defect of this program."""


def advance(current: Phase, following: Phase) -> Phase:
    """Return the following phase, if the table allows it."""
    if following not in NEXT[current]:
        raise IllegalTransitionError(f"{current} does not lead to {following}")
    return following


def is_final(phase: Phase) -> bool:
    """Whether nothing follows."""
    return not NEXT[phase]
