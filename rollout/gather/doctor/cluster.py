"""From what the API server answered to verdicts about it. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

from rollout.gather.cluster.rights import Right
from rollout.gather.doctor.checks import Check, CheckName, failed, passed, warned
from rollout.gather.doctor.hosts import SKEW_SECONDS
from rollout.model.cluster import ClusterIdentity
from rollout.model.text import elapsed

# The first that serves evictions by policy/v1.
_OLDEST = (1, 22)
_RELEASE = re.compile(r"v?(\d+)\.(\d+)")
_RIGHTS_FIX = "Get it granted: `rollout manifests roles` prints a ClusterRole and Roles that hold every right."


def server_checks(identity: ClusterIdentity) -> Iterator[Check]:
    """The server answers, and is new enough."""
    yield passed(CheckName.KUBECONFIG, identity.server, "the API server answers, and knows this user")
    release = _RELEASE.match(identity.version)
    subject = identity.version or "unknown"
    if release is None:
        yield warned(
            CheckName.SERVER_VERSION, subject, "the version is not a Kubernetes release", "See kubectl version."
        )
    elif (int(release[1]), int(release[2])) < _OLDEST:
        yield failed(
            CheckName.SERVER_VERSION,
            subject,
            "the server has no policy/v1 evictions",
            f"Upgrade it to {_OLDEST[0]}.{_OLDEST[1]} or later.",
        )
    else:
        yield passed(CheckName.SERVER_VERSION, subject, "the server is new enough")


def clock_checks(own: datetime, server: datetime | None) -> Iterator[Check]:
    """Whether this machine's clock, by which windows open, is far from the API server's; nothing where it is near."""
    if apart := clocks_apart(own, server):
        yield warned(CheckName.CLOCK, "this machine", apart, "See timedatectl on both.")


def clocks_apart(own: datetime, server: datetime | None) -> str:
    """How far, in a sentence; empty where that is near, or not known."""
    ahead = (own - server).total_seconds() if server else 0.0
    if abs(ahead) <= SKEW_SECONDS:
        return ""
    word = "ahead of" if ahead > 0 else "behind"
    return f"this machine's clock is {elapsed(abs(ahead))} {word} the API server's, and windows open by it"


def right_checks(needs: Iterable[Right], missing: Sequence[Right]) -> Iterator[Check]:
    """One verdict for each right."""
    for right in dict.fromkeys(needs):
        if right not in missing:
            yield passed(CheckName.RIGHT, str(right), f"granted: {right.purpose}")
        elif right.optional:
            yield warned(CheckName.RIGHT, str(right), f"not granted: rollout cannot {right.purpose}", _RIGHTS_FIX)
        else:
            yield failed(CheckName.RIGHT, str(right), f"not granted: rollout cannot {right.purpose}", _RIGHTS_FIX)
