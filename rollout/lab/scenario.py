"""What a lab is to be like: the format of scenario files, and how they are found and read.

A scenario says which hosts there are, what is staged or wrong on each, what runs in the cluster,
and how the API server misbehaves. The files that ship with the lab are read just as an operator's
own.
"""

import shlex
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from enum import StrEnum
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, TypeAlias
from urllib.parse import urlsplit

import msgspec
import yaml

from rollout.errors import ScenarioError
from rollout.lab.api.access import Denial
from rollout.lab.api.faults import ApiFault
from rollout.lab.hosts.machine import HostSettings, HostTimings
from rollout.lab.scenarios import SUFFIX, scenario_names
from rollout.lab.world.host import Timings
from rollout.model.quantity import LONGEST
from rollout.model.yaml_text import read_yaml

Name: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")]
# More than any cluster has. A larger number would take all memory before it is refused.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
PerWorker: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class Role(StrEnum):
    """What a node is for."""

    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


class NodeGroup(HostSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hosts that are alike, named `prefix-1`, `prefix-2` and so on, spread over the zones in turn."""

    prefix: Name
    count: Count
    role: Role = Role.WORKER
    zones: tuple[str, ...] = ()


class HostSelection(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """Which hosts an override is for: all conditions must hold."""

    names: tuple[str, ...] = ()
    role: Role | None = None
    zone: str | None = None


class HostOverride(HostSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Something said of certain hosts; later overrides win."""

    select: HostSelection


class WorkloadKind(StrEnum):
    """What runs pods; a static pod is one that a node's kubelet runs by itself."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    POD = "Pod"
    STATIC_POD = "StaticPod"


class ScenarioBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A disruption budget; counts or percentages, exactly one of the two."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    always_allow_unhealthy: bool = False

    def __post_init__(self) -> None:
        """Refuse what an API server would refuse."""
        if (self.min_available is None) == (self.max_unavailable is None):
            raise ValueError("a budget has either min_available or max_unavailable")


class ScenarioWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload.

    `replicas_per_worker` counts instead of `replicas` where it is given; `copies_per_worker` makes
    that many workloads of it, named `name-1` and so on, as a large cluster has many small ones.
    `lab` holds annotations for the simulated pods, without their prefix. `role` restricts to the
    nodes of a role, `node` names the node of a bare pod. `spread` is the topology key over which
    replicas are spread as far as that is possible. `volume_in` has the labels of the only nodes
    that the pods' common volume attaches to. `spec` is laid over the pods' spec as it is; `owner`
    (kind and name) makes bare pods belong to a controller that need not exist. `marks` are
    annotations of the workload itself.
    """

    kind: WorkloadKind
    name: Name
    namespace: Name = "default"
    replicas: Count = 1
    replicas_per_worker: PerWorker | None = None
    copies_per_worker: PerWorker | None = None
    requests: Mapping[str, str] = msgspec.field(
        default_factory=lambda: {"cpu": "50m", "memory": "64Mi"}
    )
    image: str = "registry.example/app:1.0"
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    marks: Mapping[str, str] = {}
    lab: Mapping[str, str] = {}
    budget: ScenarioBudget | None = None
    second_budget: ScenarioBudget | None = None
    role: Role | None = None
    node: str | None = None
    spread: str | None = None
    node_selector: Mapping[str, str] = {}
    volume_in: Mapping[str, str] = {}
    spec: Mapping[str, Any] = {}
    owner: Mapping[str, str] = {}


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole lab. Its machines' clocks are `clock_ahead` seconds ahead of this machine's; below 0, behind.

    `steps` are the command lines that it is tried with, where they are not the usual ones
    (`steps.py`). `fleetlock` is the base URL that hosts with Zincati ask; while it is empty they
    ask nobody. `like` is a file that `plan --snapshot` has written: the lab is that cluster,
    whatever else stands here of nodes and workloads. With `ipv6` hosts listen on ::1, a port a
    host, and their Nodes report that address.
    """

    description: str
    nodes: tuple[NodeGroup, ...]
    name: str = ""
    extends: str | None = None
    seed: int = 1
    timings: Timings = Timings()
    host_timings: HostTimings = HostTimings()
    hosts: tuple[HostOverride, ...] = ()
    workloads: tuple[ScenarioWorkload, ...] = ()
    api_faults: tuple[ApiFault, ...] = ()
    denials: tuple[Denial, ...] = ()
    clock_ahead: Annotated[float, msgspec.Meta(ge=-LONGEST, le=LONGEST)] = 0.0
    ipv6: bool = False
    fleetlock: str = ""
    like: str = ""
    steps: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what could not be told apart later."""
        prefixes = [group.prefix for group in self.nodes]
        if not sum(group.count for group in self.nodes):
            raise ValueError("a scenario needs at least one node")
        if len(set(prefixes)) < len(prefixes):
            raise ValueError("two groups of nodes have the same prefix")


def load_scenario(
    name_or_path: str, read_file: Callable[[Path], bytes] = Path.read_bytes
) -> Scenario:
    """Return the scenario of this name, or in this file; raises ScenarioError.

    A name is one without a slash or a suffix; anything else is a path.
    """
    if name_or_path in scenario_names():
        return _decode(_read_shipped(name_or_path), name_or_path, source=name_or_path)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        raise ScenarioError(f"there is no scenario named {name_or_path}", hint=_hint(name_or_path))
    try:
        text = read_file(path).decode()
    except OSError as error:
        raise ScenarioError(f"cannot read the scenario {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"the scenario {path} is not UTF-8: {error}") from error
    return _decode(_document(text, str(path)), path.stem, source=str(path))


def _hint(name: str) -> str:
    """Return the scenario that somebody means who writes this name, or all of them."""
    if close := get_close_matches(name, scenario_names(), n=1):
        return f"Did you mean {close[0]}? See them all: rollout lab scenarios"
    return f"known are {', '.join(scenario_names())}; or name a file"


@cache
def _read_shipped(name: str) -> dict[str, Any]:
    """Once: a lab takes longer to read what it is to be than to start it."""
    text = (resources.files("rollout.lab.scenarios") / f"{name}{SUFFIX}").read_text(
        encoding="utf-8"
    )
    return _document(text, name)


def _decode(document: dict[str, Any], name: str, *, source: str) -> Scenario:
    document = {"name": name, **document}
    base = document.get("extends")
    if base is not None:
        document = _extend(document, base, source)
    try:
        return msgspec.convert(document, Scenario, strict=True, str_keys=False)
    except msgspec.ValidationError as error:
        raise ScenarioError(
            f"{source}: {_sentence(str(error))}",
            hint="`rollout lab scenarios` lists examples that work",
        ) from error


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        document = read_yaml(text)
    except yaml.YAMLError as error:
        raise ScenarioError(f"{source} is not YAML: {' '.join(str(error).split())}") from error
    if not isinstance(document, dict):
        raise ScenarioError(f"{source}: a scenario is a mapping with a description and nodes")
    return document


def _extend(document: dict[str, Any], base: object, source: str) -> dict[str, Any]:
    """Return a scenario on top of a shipped one: lists grow, everything else is replaced."""
    if not isinstance(base, str) or base not in scenario_names():
        known = ", ".join(scenario_names())
        raise ScenarioError(
            f"{source}: extends names no shipped scenario: {base}", hint=f"known are {known}"
        )
    below = _read_shipped(base)
    if "extends" in below:
        below = _extend(below, below["extends"], base)
    merged = {**below, **document}
    for key in ("hosts", "workloads", "api_faults", "denials"):
        if isinstance(below.get(key), list) and isinstance(document.get(key), list):
            merged[key] = [*below[key], *document[key]]
    return merged


def _sentence(message: str) -> str:
    """Return a message of msgspec with its JSON path in the words of a YAML file."""
    what, _, where = message.partition(" - at ")
    path = where.rpartition("`$")[2].rstrip("`").lstrip(".")
    return f"{path}: {what[:1].lower()}{what[1:]}" if path else f"{what[:1].lower()}{what[1:]}"


_USUAL = (
    "rollout status",
    "rollout plan --max-unavailable 3",
    "rollout apply --max-unavailable 3",
    "kubectl get nodes",
)


def steps_of(scenario: Scenario) -> tuple[str, ...]:
    """Return the lines, in their order."""
    if not scenario.fleetlock:
        return scenario.steps or _USUAL
    url = urlsplit(scenario.fleetlock)
    # any other is served elsewhere, or behind something that this line would not start
    is_served_here = url.scheme == "http" and url.path in ("", "/")
    serve = (
        (f"rollout fleetlock serve --listen {url.netloc}   # serves until Ctrl-C",)
        if is_served_here
        else ()
    )
    return (
        *serve,
        "rollout fleetlock status   # in one more terminal, with the same env",
        "rollout status",
    )


def flags_of(scenario: Scenario) -> Sequence[str]:
    """Return the flags with which a scenario is to be planned; none where no line has the command."""
    lines = (shlex.split(step, comments=True) for step in steps_of(scenario))
    return next((words[2:] for words in lines if words[:2] == ["rollout", "plan"]), ())
