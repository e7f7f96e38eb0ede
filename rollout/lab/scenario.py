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
# A larger number would take all memory before it is refused.
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=100_000)]
PerWorker: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1000)]


class Role(StrEnum):
    CONTROL_PLANE = "control-plane"
    WORKER = "worker"


class NodeGroup(HostSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The hosts are named `prefix-1` and so on, spread over zones."""

    prefix: Name
    count: Count
    role: Role = Role.WORKER
    zones: tuple[str, ...] = ()


class HostSelection(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    names: tuple[str, ...] = ()
    role: Role | None = None
    zone: str | None = None


class HostOverride(HostSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Later overrides win."""

    select: HostSelection


class WorkloadKind(StrEnum):
    """A kubelet runs static pods by itself.

    A Cluster is a database, whose operator moves the primary off a cordoned node.
    """

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"
    DAEMON_SET = "DaemonSet"
    POD = "Pod"
    STATIC_POD = "StaticPod"
    DATABASE = "Cluster"


class ScenarioBudget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Exactly one limit is set, a count or a percentage."""

    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    always_allow_unhealthy: bool = False

    def __post_init__(self) -> None:
        if (self.min_available is None) == (self.max_unavailable is None):
            raise ValueError("a budget has either min_available or max_unavailable")


class ScenarioWorkload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`replicas_per_worker` replaces `replicas`; `spec` replaces fields of the pods'.

    `copies_per_worker` creates workloads named `name-1` and so on. `lab` has the pods' annotations
    for the lab, without their prefix. `node` is a bare pod's. `spread` is the topology key over
    which replicas are spread if possible. `volume_in` has the labels of the only nodes that the
    pods' common volume attaches to. `owner` (kind and name) of bare pods need not exist. `marks`
    are annotations of the workload itself.
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
    """`clock_ahead` is in seconds, negative for behind.

    `steps` are the command lines to suggest, if not the usual ones. `fleetlock` is the base URL for
    hosts with Zincati. `like` is a file of `plan --snapshot`: the lab copies that cluster, and
    nodes and workloads here do not count. With `ipv6` hosts listen on ::1.
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
        prefixes = [group.prefix for group in self.nodes]
        if not sum(group.count for group in self.nodes):
            raise ValueError("a scenario needs at least one node")
        if len(set(prefixes)) < len(prefixes):
            raise ValueError("two groups of nodes have the same prefix")


def load_scenario(
    name_or_path: str, read_file: Callable[[Path], bytes] = Path.read_bytes
) -> Scenario:
    """Return the lab's scenario of this name, or a file's."""
    if name_or_path in scenario_names():
        return _decode(_read_shipped(name_or_path), name_or_path, source=name_or_path)
    path = Path(name_or_path)
    if path.suffix not in (".yaml", ".yml") and not path.exists():
        hint = f"known scenarios: {', '.join(scenario_names())}; or specify a file"
        close = get_close_matches(name_or_path, scenario_names(), n=1)
        if close:
            hint = f"Did you mean {close[0]}? See them all: rollout lab scenarios"
        raise ScenarioError(f"there is no scenario named {name_or_path}", hint=hint)
    try:
        text = read_file(path).decode()
    except OSError as error:
        raise ScenarioError(f"cannot read the scenario {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ScenarioError(f"the scenario {path} is not valid UTF-8: {error}") from error
    return _decode(_document(text, str(path)), path.stem, source=str(path))


@cache
def _read_shipped(name: str) -> dict[str, Any]:
    # Reading a scenario takes longer than starting its lab.
    file = resources.files("rollout.lab.scenarios") / f"{name}{SUFFIX}"
    return _document(file.read_text(encoding="utf-8"), name)


def _decode(document: dict[str, Any], name: str, *, source: str) -> Scenario:
    document = {"name": name, **document}
    base = document.get("extends")
    if base is not None:
        document = _extend(document, base, source)
    try:
        return msgspec.convert(document, Scenario, strict=True, str_keys=False)
    except msgspec.ValidationError as error:
        hint = "`rollout lab scenarios` lists examples that work"
        raise ScenarioError(f"{source}: {_sentence(str(error))}", hint=hint) from error


def _document(text: str, source: str) -> dict[str, Any]:
    try:
        document = read_yaml(text)
    except yaml.YAMLError as error:
        raise ScenarioError(
            f"{source} is not valid YAML: {' '.join(str(error).split())}"
        ) from error
    if not isinstance(document, dict):
        raise ScenarioError(f"{source}: a scenario is a mapping with a description and nodes")
    return document


def _extend(document: dict[str, Any], base: object, source: str) -> dict[str, Any]:
    """Lists are joined, other fields replaced."""
    if not isinstance(base, str) or base not in scenario_names():
        known = ", ".join(scenario_names())
        raise ScenarioError(
            f"{source}: extends does not name a built-in scenario: {base}",
            hint=f"known scenarios: {known}",
        )
    base_document = _read_shipped(base)
    if "extends" in base_document:
        base_document = _extend(base_document, base_document["extends"], base)
    merged = {**base_document, **document}
    for key in ("hosts", "workloads", "api_faults", "denials"):
        before = base_document.get(key)
        added = document.get(key)
        if isinstance(before, list) and isinstance(added, list):
            merged[key] = before + added
    return merged


def _sentence(message: str) -> str:
    text, _, location = message.partition(" - at ")
    text = text[:1].lower() + text[1:]
    path = location.rpartition("`$")[2].rstrip("`").lstrip(".")
    return f"{path}: {text}" if path else text


_USUAL_STEPS = (
    "rollout status",
    "rollout plan --max-unavailable 3",
    "rollout apply --max-unavailable 3",
    "kubectl get nodes",
)


def steps_of(scenario: Scenario) -> tuple[str, ...]:
    if not scenario.fleetlock:
        return scenario.steps or _USUAL_STEPS
    steps = (
        "rollout fleetlock status   # in one more terminal, with the same env",
        "rollout status",
    )
    url = urlsplit(scenario.fleetlock)
    if url.scheme == "http" and url.path in ("", "/"):
        serve = f"rollout fleetlock serve --listen {url.netloc}   # serves until Ctrl-C"
        return (serve, *steps)
    return steps


def flags_of(scenario: Scenario) -> Sequence[str]:
    for step in steps_of(scenario):
        words = shlex.split(step, comments=True)
        if words[:2] == ["rollout", "plan"]:
            return words[2:]
    return ()
