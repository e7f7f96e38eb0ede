"""Completes names in the shell. Errors complete nothing."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from rollout.cli.settings.values import NODE_PREFIXES, parse_node_name

if TYPE_CHECKING:
    from rollout.cli.settings.reading import CommandSettings
    from rollout.ports import ClusterApi

_TIMEOUT_SECONDS = 2.0
_NODES = "/api/v1/nodes"
_PAGE: Mapping[str, str] = {"limit": "500", "resourceVersion": "0"}
# Standard output carries the suggestions.
_TERMINAL = (0, 2)


def node_names(context: typer.Context, incomplete: str) -> list[str]:
    before, comma, last = incomplete.rpartition(",")
    prefix = next((prefix for prefix in NODE_PREFIXES if last.startswith(prefix)), "")
    typed_names = {*before.split(","), *_typed_node_names(context)}
    names = [name for name in _query_cluster(context, _read_node_names) if name not in typed_names]
    return _starting_with(incomplete, [f"{before}{comma}{prefix}{name}" for name in names])


def held_versions(context: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, _query_cluster(context, _read_failed_versions))


def proven_versions(context: typer.Context, incomplete: str) -> list[str]:
    return _starting_with(incomplete, _query_cluster(context, _read_rebooted_versions))


def run_ids(context: typer.Context, incomplete: str) -> list[str]:
    from rollout.adapters.journal import (
        is_same_api_server,
        latest_first,
        list_journals,
        read_api_server,
    )
    from rollout.adapters.kube.kubeconfig import find_login

    with _quiet_terminal(), suppress(Exception):
        files = latest_first(list_journals())
        # Without a current cluster, the order stays.
        with suppress(Exception):
            cluster = _read_settings(context).cluster
            api_server = find_login(cluster.kubeconfig, cluster.context or None).server

            def is_of_other_cluster(path: Path) -> bool:
                return not is_same_api_server(api_server, read_api_server(path))

            files = sorted(files, key=is_of_other_cluster)
        return _starting_with(incomplete, (file.stem for file in files))
    return []


def lab_scenarios(
    context: typer.Context,  # noqa: ARG001 - typer passes it
    incomplete: str,
) -> list[str]:
    from rollout.lab.scenarios import scenario_names

    return _starting_with(incomplete, scenario_names())


def _starting_with(incomplete: str, words: Iterable[str]) -> list[str]:
    return [word for word in dict.fromkeys(words) if word.startswith(incomplete)]


def _typed_node_names(context: typer.Context) -> Iterator[str]:
    """Yield words of all list options; other lists hardly have node names."""
    for values in context.params.values():
        if not isinstance(values, list | tuple):
            continue
        all_values = ",".join(str(value) for value in values)
        for word in all_values.split(","):
            has_name = word not in ("", *NODE_PREFIXES)
            if has_name:
                yield parse_node_name(word)


def _query_cluster(
    context: typer.Context, query: Callable[["ClusterApi", str], Iterable[str]]
) -> list[str]:
    from rollout.threads import in_background

    def connect_and_query() -> list[str]:
        from rollout.adapters.kube.api import connect

        settings = _read_settings(context)
        cluster = settings.cluster
        api = connect(cluster.kubeconfig, cluster.context or None).within(_TIMEOUT_SECONDS)
        return list(query(api, settings.lock.namespace))

    with _quiet_terminal(), suppress(Exception):
        future: Future[list[str]] = in_background(connect_and_query, "completion")
        return future.result(_TIMEOUT_SECONDS)
    return []


def _read_settings(context: typer.Context) -> "CommandSettings":
    from rollout.cli.settings.reading import (
        PlacedValue,
        assignments,
        from_environment,
        merge_settings,
        read_file,
    )
    from rollout.cli.settings.schema import settings as every_setting

    values = context.params
    # No other flag matters for a completion.
    cluster_settings = [
        setting
        for setting in every_setting().values()
        if setting.name.startswith("cluster.") and setting.flag
    ]
    typed = {}
    for setting in cluster_settings:
        value = values.get(setting.flag.replace("-", "_"))
        if value:
            typed[setting.name] = PlacedValue(_expand(value), f"--{setting.flag}")
    config = values.get("config")
    in_file = read_file(Path(_expand(config)) if config else None)
    in_environment = from_environment(os.environ, cluster_settings)
    assigned = assignments(values.get("set_") or ())
    return merge_settings(in_file, in_environment, {**assigned, **typed})


def _expand(word: str) -> str:
    """During a completion, the shell leaves `~` as typed."""
    return str(Path(word).expanduser()) if word.startswith("~") else word


def _read_node_names(api: "ClusterApi", _namespace: str) -> Iterator[str]:
    import msgspec

    from rollout.gather.cluster import wire

    for page in api.pages(_NODES, _PAGE):
        for node in msgspec.json.decode(page, type=wire.ListPage[wire.Object]).items or ():
            yield node.metadata.name


def _read_failed_versions(api: "ClusterApi", namespace: str) -> Iterable[str]:
    from rollout.gather.cluster.documents import read_memory

    return reversed(list(read_memory(api, namespace).versions))


def _read_rebooted_versions(api: "ClusterApi", _namespace: str) -> Iterable[str]:
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.model.node_marks import last_result

    versions = {last_result(node).get("version", "") for node in read_nodes(api)}
    return sorted(versions - {""})


@contextmanager
def _quiet_terminal() -> Iterator[None]:
    """Also keep child processes away from the terminal."""
    saved_streams = {number: os.dup(number) for number in _TERMINAL}
    null_device = os.open(os.devnull, os.O_RDWR)
    try:
        for number in saved_streams:
            os.dup2(null_device, number)
        yield
    finally:
        for number, stream in saved_streams.items():
            os.dup2(stream, number)
            os.close(stream)
        os.close(null_device)
