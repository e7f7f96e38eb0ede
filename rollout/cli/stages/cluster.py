from collections.abc import Callable
from functools import cached_property
from typing import TypeVar, TypeVarTuple

from msgspec import Struct
from msgspec.structs import replace

from rollout.cli import wiring
from rollout.cli.log import stage
from rollout.cli.settings.schema import Settings, SshSettings
from rollout.cli.terminal import say, show_progress, warn
from rollout.execution.base.deadline import Deadline, is_transient_answer, retry_until
from rollout.gather.cluster import documents, snapshot
from rollout.model.cluster import ClusterSnapshot, Node
from rollout.model.memory import Memory
from rollout.model.text import counted
from rollout.ports import ClusterApi, HostExecutor

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_RETRY_SECONDS = 60.0


class Connections(Struct, frozen=True, dict=True):
    api: ClusterApi
    ssh: SshSettings

    @cached_property
    def shell(self) -> HostExecutor:
        """Made at the first use: the SSH client takes 0.1 s to import."""
        return wiring.host_shell(self.ssh)


def connect(settings: Settings) -> Connections:
    connections = Connections(wiring.cluster_api(settings), settings.ssh)
    names_ssh_files = settings.ssh.key or settings.ssh.known_hosts
    if names_ssh_files:
        # Report an unusable file before the first request.
        _ = connections.shell
    return connections


def with_retries(action: Callable[[*Ts], T], *arguments: *Ts) -> T:
    """Retry API errors for a minute, unless no API server answers."""
    has_reported = False

    def report_once(error: BaseException) -> None:
        nonlocal has_reported
        if not has_reported:
            say(f"waiting for the API server: {error}")
        has_reported = True

    return retry_until(
        Deadline(wiring.system_clock(), _RETRY_SECONDS),
        lambda: action(*arguments),
        report_once,
        retriable=is_transient_answer,
    )


def read_cluster(
    api: ClusterApi,
    namespace: str,
    answers: snapshot.CachedObjects | None = None,
    *,
    warns: bool = True,
    with_jobs: bool = False,
) -> ClusterSnapshot:
    """Read the cluster's objects and rollout's memory.

    The API server's answers are stored in `answers`. `warns` of an unreadable memory.
    """
    with stage("read the cluster") as add_note, show_progress("reading the cluster"):
        cluster = with_retries(lambda: snapshot.read_snapshot(api, answers, with_jobs=with_jobs))
        warn(*cluster.warnings)
        memory = read_memory(api, namespace, warns=warns)
        add_note(
            f"{counted(len(cluster.nodes), 'node')}, {counted(len(cluster.pods), 'pod')},"
            f" {counted(len(cluster.budgets), 'PDB')}"
        )
    return replace(cluster, memory=memory)


def read_memory(api: ClusterApi, namespace: str, *, warns: bool = False) -> Memory:
    memory = with_retries(documents.read_memory, api, namespace)
    if memory.why_unreadable and warns:
        say(
            f"warning: {memory.why_unreadable}: rollout cannot tell which versions are held, or"
            " whether nodes are paused"
        )
    return memory


def read_nodes(api: ClusterApi) -> tuple[Node, ...]:
    with stage("read the nodes") as add_note, show_progress("reading the nodes"):
        nodes = with_retries(snapshot.read_nodes, api)
        add_note(f"{len(nodes)} nodes")
    return nodes
