from collections.abc import Mapping
from pathlib import Path

from msgspec.structs import replace

from rollout.adapters.evidence_files import SignedDocument, read_documents, why_not_signed
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.cluster import read_memory
from rollout.errors import ApiError, UsageError
from rollout.execution.record.memory import change_memory
from rollout.gather.cluster.snapshot import read_identity
from rollout.model.memory import MOST_VERSIONS, Memory
from rollout.planning.eligibility.evidence import (
    Evidence,
    EvidenceRules,
    ProvenVersions,
    read_evidence,
    why_not_accepted,
)
from rollout.ports import ClusterApi


def evidence_rules(settings: Settings) -> EvidenceRules:
    evidence = settings.evidence
    if not evidence.cluster or evidence.allowed_signers is None:
        hint = (
            "Set evidence.cluster to the cluster that verifies versions, and"
            " evidence.allowed-signers to the file with its SSH key."
        )
        raise UsageError(
            "--require-evidence needs evidence.cluster and evidence.allowed-signers", hint=hint
        )
    return EvidenceRules(evidence.cluster, evidence.nodes, evidence.hours, evidence.max_age)


def read_proven_versions(api: ClusterApi, settings: Settings) -> ProvenVersions | None:
    """Return what other clusters have proved; None if none is required."""
    if not settings.evidence.source:
        return None
    memory = read_memory(api, settings.lock.namespace)
    return _read_documents(api, settings, memory)


def read_and_remember_proven(api: ClusterApi, settings: Settings) -> ProvenVersions | None:
    """Also store each document's time, so that no older one counts.

    Nothing is proven if the memory cannot be written.
    """
    if not settings.evidence.source:
        return None
    memory = read_memory(api, settings.lock.namespace)
    proven = _read_documents(api, settings, memory)
    new_times = {version: document.made_at for version, document in proven.documents.items()}
    are_all_stored = new_times.items() <= memory.evidence.items()
    if are_all_stored:
        return proven

    def add_times(stored: Memory) -> Memory:
        times = {**stored.evidence, **new_times}
        latest_versions = sorted(times, key=lambda version: times[version])[-MOST_VERSIONS:]
        return replace(stored, evidence={version: times[version] for version in latest_versions})

    try:
        change_memory(api, settings.lock.namespace, add_times)
    except ApiError as error:
        problem = f"the time of the evidence cannot be stored: {error.message}"
        return ProvenVersions(proven.rules, {}, (*proven.problems, problem))
    return proven


def _read_documents(api: ClusterApi, settings: Settings, memory: Memory) -> ProvenVersions:
    rules = evidence_rules(settings)
    accepted = list[Evidence]()
    problems = list[str]()
    for signed in read_documents(settings.evidence.source, api, settings.lock.namespace):
        try:
            accepted.append(_accept_document(signed, api, settings, seen=memory.evidence))
        except ValueError as error:
            problems.append(f"evidence {signed.origin}: {error}")
    accepted.sort(key=lambda document: document.made_at)
    # The latest document about a version comes last.
    documents = {document.version: document for document in accepted}
    return ProvenVersions(rules, documents, tuple(problems))


def _accept_document(
    signed: SignedDocument, api: ClusterApi, settings: Settings, *, seen: Mapping[str, str]
) -> Evidence:
    """Raise `ValueError` with the reason why a document does not count.

    `seen` has the latest time by version: older documents do not count.
    """
    rules = evidence_rules(settings)
    # `evidence_rules` requires it.
    signers = settings.evidence.allowed_signers or Path()
    signature_problem = signed.problem or why_not_signed(signed, signers, rules.cluster)
    if signature_problem:
        raise ValueError(signature_problem)
    document = read_evidence(signed.content)
    own_uid = read_identity(api).uid
    why_rejected = why_not_accepted(
        document,
        rules,
        own_cluster_uid=own_uid,
        latest_by_version=seen,
        now=api.server_time(),
    )
    if why_rejected:
        raise ValueError(why_rejected)
    return document
