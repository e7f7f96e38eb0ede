"""How many hosts may be asked at once where the system limits open files: more would be taken for unreachable."""

import resource
from functools import cache

from rollout.cli.terminal import say

# What else is open: standard streams, connections to the API server, the journal, pipes of workers.
_OTHERS = 40
# A connection, and the pipe by which paramiko is woken while a command runs.
_A_HOST = 3


def asked_at_once(wanted: int, hosts: int) -> int:
    """As many of `hosts` as are wanted at once, or as the limit has room for; that it has less is said once."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = wanted if limit == resource.RLIM_INFINITY else max(1, (limit - _OTHERS) // _A_HOST)
    if room < min(wanted, hosts):
        _say_less(room, limit)
    return min(wanted, room)


@cache
def _say_less(room: int, limit: int) -> None:
    say(
        f"{room} hosts are asked at once, not as many as --probe-concurrency allows: no more than {limit} files may be "
        "open. Raise that limit with ulimit -n, where the hard one allows it"
    )
