"""What is installed: the operator's choices, as the templates print them."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rollout.model.marks import LEASE_NAMESPACE

# An object as the API server takes it.
Json = dict[str, Any]

DEFAULT_NAME = "node-rollout"
FLEETLOCK_NAME = f"{DEFAULT_NAME}-fleetlock"
# The key of Secrets of the type kubernetes.io/ssh-auth, which the API server checks for.
SSH_KEY = "ssh-privatekey"
# Measured: 88 MiB for 76 pods, 367 MiB for a plan over 30,000; Ansible takes more.


class Kind(StrEnum):
    """What to print: a workload with all that it needs, or the roles alone."""

    CRONJOB = "cronjob"
    DEPLOYMENT = "deployment"
    JOB = "job"
    FLEETLOCK = "fleetlock"
    ROLES = "roles"


class User(StrEnum):
    """Whose rights are printed: those of people with all commands, of `rollout operate`, or of a FleetLock server."""

    PEOPLE = "people"
    OPERATE = "operate"
    FLEETLOCK = "fleetlock"


@dataclass(frozen=True, slots=True)
class Times:
    """When a pass begins, and how long things may take; seconds.

    `schedule` is a CronJob's, in `time_zone`; `every` a Deployment's pause between two passes. A pass of a Job ends
    within `deadline`. `grace` is what the nodes in flight may need after SIGTERM.
    """

    schedule: str
    time_zone: str
    every: int
    deadline: int
    grace: int


@dataclass(frozen=True, slots=True)
class Access:
    """Which account may do what, and where the lock is."""

    name: str = DEFAULT_NAME
    namespace: str = DEFAULT_NAME
    lease_namespace: str = LEASE_NAMESPACE
    disable_eviction: bool = False
    user: User = User.PEOPLE


@dataclass(frozen=True, slots=True)
class Files:
    """What the pod reads: two texts, `settings` may be empty, and the names of Secrets, `env_secret` may be empty."""

    settings: str
    known_hosts: str
    ssh_secret: str
    env_secret: str = ""


@dataclass(frozen=True, slots=True)
class Listen:
    """Where a standing process serves metrics and probes: as it is written, empty for nowhere, and the port in it.

    `is_reachable`: on an address of the pod, not of its loopback alone.
    """

    address: str = ""
    port: int = 0
    is_reachable: bool = False


@dataclass(frozen=True, slots=True)
class Service:
    """How hosts reach the FleetLock server: `tls_secret` and `cluster_ip` may be empty.

    `networks`: the addresses that may ask, in CIDR notation; none: all.
    """

    replicas: int = 2
    port: int = 8080
    tls_secret: str = ""
    cluster_ip: str = ""
    networks: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        """Of its URL."""
        return "https" if self.tls_secret else "http"


@dataclass(frozen=True, slots=True)
class Pod:
    """What its cluster asks of the pod: with which Secrets it is pulled, and whether a PodMonitor has it scraped."""

    pull_secrets: tuple[str, ...] = ()
    monitor: bool = False


@dataclass(frozen=True, slots=True)
class Installation:
    """All of it."""

    kind: Kind
    image: str
    access: Access
    files: Files
    times: Times
    listen: Listen = Listen()
    service: Service = Service()
    pod: Pod = field(default_factory=Pod)
