"""What an operating process, and `status`, know of versions that another cluster has to prove first."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from rollout.adapters.evidence_files import SignedDocument, read_documents, why_not_signed
from rollout.cli.settings.schema import Settings
from rollout.cli.stages.session import Session
from rollout.errors import ApiError, UsageError
from rollout.execution.record.memory import change_memory
from rollout.gather.cluster.snapshot import read_identity
from rollout.model.evidence import Evidence, EvidenceRules
from rollout.model.memory import MOST_VERSIONS, Memory
from rollout.planning.eligibility.evidence import Proven, read_evidence, why_refused

_NEEDED = "evidence.cluster names the cluster that proves, evidence.allowed-signers the file of its SSH key."


def proven_elsewhere(session: Session, memory: Memory, *, remembers: bool = False) -> Proven | None:
    """Return what counts of the evidence; None where none is required. `ApiError` while the API server is away.

    With `remembers` the latest of each version is remembered, so that an older one does not count again: where that
    cannot be written, none counts.
    """
    settings, api, namespace = session.settings, session.api, session.namespace
    if not settings.evidence.source:
        return None
    rules = evidence_rules(settings)
    documents: dict[str, Evidence] = {}
    problems: list[str] = []
    for signed in read_documents(settings.evidence.source, api, namespace):
        try:
            document = _counting(signed, session, rules, memory.evidence)
        except ValueError as error:
            problems.append(f"evidence {signed.origin}: {error}")
        else:
            known = documents.get(document.version)
            documents[document.version] = max(known or document, document, key=lambda item: item.made_at)
    fresh = {version: document.made_at for version, document in documents.items()}
    if remembers and not fresh.items() <= memory.evidence.items():
        try:
            change_memory(api, namespace, lambda before: _noted(before, fresh))
        except ApiError as error:
            return Proven(rules, {}, (*problems, f"evidence cannot be remembered: {error.message}"))
    return Proven(rules, documents, tuple(problems))


def evidence_rules(settings: Settings) -> EvidenceRules:
    """Return what is required; `UsageError` where that cannot be told."""
    asked = settings.evidence
    if not asked.cluster or asked.allowed_signers is None:
        raise UsageError("--require-evidence does not say whose", hint=_NEEDED)
    return EvidenceRules(asked.cluster, asked.nodes, asked.hours, asked.max_age)


def _counting(signed: SignedDocument, session: Session, rules: EvidenceRules, seen: Mapping[str, str]) -> Evidence:
    """Return the document, where nothing is wrong with it; else `ValueError`."""
    signers, api = session.settings.evidence.allowed_signers, session.api
    if signed.problem or signers is None:
        raise ValueError(signed.problem)
    if why := why_not_signed(signed, signers, rules.cluster):
        raise ValueError(why)
    document = read_evidence(signed.content)
    if why := why_refused(document, rules, own=read_identity(api).uid, seen=seen, now=api.server_time()):
        raise ValueError(why)
    return document


def _noted(memory: Memory, fresh: Mapping[str, str]) -> Memory:
    """With the times of what was seen, those of the latest documents alone."""
    times = sorted({**memory.evidence, **fresh}.items(), key=lambda item: item[1])
    return replace(memory, evidence=dict(times[-MOST_VERSIONS:]))


def proven_as_known(session: Session, memory: Memory) -> Proven | None:
    """Return the same for who only looks; None also while the API server is away."""
    with suppress(ApiError):
        return proven_elsewhere(session, memory)
    return None
