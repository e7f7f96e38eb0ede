"""What a shell completes beside commands and flags: names that exist now.

Nobody waits long for a key to answer, and nothing may be printed into a line that is being typed: whatever cannot be
found out in time, or at all, completes nothing.
"""

import inspect
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import typer
from typer.models import ParameterInfo

if TYPE_CHECKING:
    from rollout.ports import ClusterApi

VARIABLE = "_ROLLOUT_COMPLETE"
# For API servers that are far away: what a key may be waited for instead.
PATIENCE = "_ROLLOUT_COMPLETE_SECONDS"
# Python and libraries have taken half a second by then.
_SECONDS = 0.4
_MOST_FILES = 200
_PLAN_BEGINS = b'"plan_id"'
_PLAN_HEAD = 200


def be_silent() -> None:
    """Where a shell asks for completions, standard error leads nowhere: for plugins of kubeconfigs, too."""
    if os.environ.get(VARIABLE, "").startswith("complete"):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def complete_values(command: Callable[..., None]) -> None:
    """Have the values of a command's flags and arguments completed by their names; of a `FILE` any file."""
    for name, parameter in inspect.signature(command).parameters.items():
        for declaration in get_args(parameter.annotation)[1:]:
            if isinstance(declaration, ParameterInfo) and get_args(parameter.annotation)[0] is not bool:
                by_metavar = files if declaration.metavar == "FILE" else declaration.autocompletion
                declaration.autocompletion = _BY_NAME.get(name) or by_metavar


def nodes(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Nodes of the cluster that the words so far name."""
    from rollout.gather.cluster.listing import read_list
    from rollout.gather.cluster.snapshot import NODES
    from rollout.gather.cluster.wire import Named

    def read() -> list[str]:
        return list(read_list(_api(ctx.params), NODES, Named, lambda node: node.metadata.name).items)

    return _beginning(incomplete, _of_cluster(read))


def contexts(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Contexts of the kubeconfig."""

    def read() -> list[str]:
        from rollout.adapters.kube.kubeconfig import contexts as read_contexts

        return list(read_contexts(_path(ctx.params), os.environ))

    return _beginning(incomplete, _in_time(read))


def versions(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Versions that are held."""
    from rollout.gather.cluster.memory import read_memory

    def read() -> list[str]:
        return list(read_memory(_api(ctx.params), _namespace(ctx.params)).versions)

    return _beginning(incomplete, _of_cluster(read))


def running(ctx: typer.Context, incomplete: str) -> Sequence[str]:
    """Return the run whose process holds the lock."""
    from rollout.execution.lease import read_lease

    def read() -> list[str]:
        run = read_lease(_api(ctx.params), _namespace(ctx.params)).run
        return [run] if run else []

    return _beginning(incomplete, _of_cluster(read))


def runs(incomplete: str) -> Sequence[str]:
    """Return runs that were written down on this machine, the latest first."""

    def read() -> list[str]:
        from rollout.adapters.journal import journals, runs_directory

        return [path.stem for path in sorted(journals(runs_directory()), key=_changed, reverse=True)]

    return _beginning(incomplete, _in_time(read))


def scenarios(incomplete: str) -> Sequence[str]:
    """Scenarios of the lab, and files."""

    def read() -> list[str]:
        from rollout.lab.scenarios import scenario_names

        return scenario_names()

    return [*_beginning(incomplete, _in_time(read)), *files(incomplete)]


def plans(incomplete: str) -> Sequence[str]:
    """Return saved plans, and folders on the way to them."""
    return _in_time(lambda: [name for name in _files(incomplete) if name.endswith("/") or _is_plan(Path(name))])


def files(incomplete: str) -> Sequence[str]:
    """Any file."""
    return _in_time(lambda: list(_files(incomplete)))


def assignments(incomplete: str) -> Sequence[str]:
    """Return settings by their keys, with the = that follows; then the words of one that has fixed ones."""
    from rollout.cli.settings.schema import settings

    name, equals, _ = incomplete.partition("=")
    if not equals:
        return _beginning(incomplete, [f"{key}=" for key in settings()])
    setting = settings().get(name)
    words = ("true", "false") if setting and setting.is_flag else setting.choices if setting else ()
    return _beginning(incomplete, [f"{name}={word}" for word in words])


def _of_cluster(read: Callable[[], list[str]]) -> list[str]:
    """Read with the client loaded before the time counts."""
    from rollout.adapters.kube.client_parts import client_parts

    client_parts()
    return _in_time(read)


def _seconds() -> float:
    try:
        return float(os.environ.get(PATIENCE, _SECONDS))
    except ValueError:
        return _SECONDS


def _in_time(read: Callable[[], list[str]]) -> list[str]:
    """Return what it finds within the time; nothing where it fails, or takes longer, and then nobody waits for it."""
    names: list[str] = []

    def reading() -> None:
        with suppress(Exception):
            names.extend(read())

    thread = threading.Thread(target=reading, name="completion", daemon=True)
    thread.start()
    thread.join(_seconds())
    return [] if thread.is_alive() else names


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete) and name.isprintable()]


def _api(given: Mapping[str, object]) -> "ClusterApi":
    from rollout.cli import wiring
    from rollout.cli.settings.schema import Cluster

    context = given.get("context")
    options = Cluster(kubeconfig=_path(given), context=context if isinstance(context, str) else "")
    return wiring.cluster_api(options).within(_seconds())


def _path(given: Mapping[str, object]) -> Path | None:
    path = given.get("kubeconfig")
    return Path(path) if isinstance(path, str) else None


def _namespace(given: Mapping[str, object]) -> str:
    from rollout.model.marks import LEASE_NAMESPACE

    words = given.get("set_")
    assigned = dict(str(word).split("=", 1) for word in words if "=" in str(word)) if isinstance(words, list) else {}
    return assigned.get("lock.namespace", LEASE_NAMESPACE)


def _files(incomplete: str) -> Iterator[str]:
    """Files and folders that begin so, as they were begun to be written; hidden ones where a dot was typed."""
    folder, _, name = incomplete.rpartition("/")
    written = f"{folder}/" if "/" in incomplete else ""
    begun = [entry for entry in os.scandir(Path(written or ".").expanduser()) if entry.name.startswith(name)]
    for entry in sorted(begun, key=lambda entry: entry.name)[:_MOST_FILES]:
        if name or not entry.name.startswith("."):
            yield f"{written}{entry.name}{'/' if entry.is_dir() else ''}"


def _is_plan(path: Path) -> bool:
    with path.expanduser().open("rb") as stream:
        return _PLAN_BEGINS in stream.read(_PLAN_HEAD)


_BY_NAME: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(("node", "exclude", "explain", "host"), nodes),
    "context": contexts,
    "version": versions,
    "force_unlock": running,
    "run": runs,
    "scenario": scenarios,
    "file": plans,
    "set_": assignments,
}


def _changed(path: Path) -> float:
    return path.stat().st_mtime
