"""`rollout evidence`."""

from pathlib import Path

from rollout.adapters.evidence_files import sign
from rollout.cli import wiring
from rollout.cli.files import check_target, write_whole
from rollout.cli.flags import argument, option, takes
from rollout.cli.settings.reading import Given
from rollout.cli.stages.gather import read_nodes, with_patience
from rollout.cli.terminal import say, show_document
from rollout.errors import ApiError, UsageError
from rollout.gather.cluster.documents import read_memory
from rollout.gather.cluster.snapshot import read_identity
from rollout.model.evidence import ProvingCluster
from rollout.model.json_text import json_document
from rollout.model.text import counted
from rollout.planning.eligibility.evidence import evidence_of


@takes("cluster")
def evidence(
    settings: Given,
    version: str = argument("", "Of this version; default: the one rebooted into last.", "VERSION"),
    out: Path | None = option(None, "The file, or a folder for VERSION.json; default: stdout", "FILE"),
    sign_key: Path | None = option(None, "Sign it with this SSH key: the signature is FILE.sig", "FILE"),
) -> None:
    """Write down what rollouts have proved of a version here, for clusters that wait for it.

    Counted are the nodes that were rebooted into it, proven, and are Ready with it now. The hosts are not asked.

    \b
    Examples:
      rollout evidence --set cluster.name=staging --out evidence/ --sign-key ~/.ssh/staging
      rollout operate --require-evidence configmap --config cluster.toml     # in the other cluster
    """
    if sign_key is not None and out is None:
        raise UsageError("--sign-key needs --out FILE", hint="The signature is written beside it, as FILE.sig.")
    is_folder = out is not None and out.is_dir()
    check_target(None if is_folder else out)
    api = wiring.cluster_api(settings)
    nodes = read_nodes(api)
    memory = with_patience(read_memory, api, settings.lock.namespace)
    if memory.problem:
        raise ApiError(f"which nodes failed is not known: {memory.problem}")
    cluster = ProvingCluster(with_patience(read_identity, api).uid, settings.cluster.name)
    document = evidence_of(version, nodes, memory, cluster, api.server_time() or wiring.now())
    content = json_document(document)
    if out is None:
        show_document(content)
        return
    file = out / f"{document.version}.json" if is_folder else out
    signature = sign(content, sign_key) if sign_key else None
    write_whole(file, content)
    if signature is not None:
        write_whole(file.with_name(f"{file.name}.sig"), signature)
    failed = f", {len(document.failed)} failed" if document.failed else ""
    say(
        f"{document.version}: {counted(len(document.nodes), 'node')}{failed}, for {document.hours:g} h. Written: {file}"
    )
