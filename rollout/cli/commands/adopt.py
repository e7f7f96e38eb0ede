"""`rollout adopt`."""

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options.cluster import ClusterOptions, LeaseOptions, LockOptions
from rollout.cli.options.declaration import OWN, Flag
from rollout.cli.options.gates import IgnoreRivalOption
from rollout.cli.options.general import GeneralOptions
from rollout.cli.options.nodes import SelectionOptions
from rollout.cli.options.run import YesOption
from rollout.errors import BlockedError, ExitCode

if TYPE_CHECKING:
    from rollout.execution.lease_terms import LeaseTerms
    from rollout.execution.rollout.adopt import Adopted, Scope
    from rollout.model.leftovers import Adoption, Standing
    from rollout.model.policy import Selection
    from rollout.ports import ClusterApi

DryRunOption = Annotated[bool, Flag(OWN, "Change nothing: show what is left, and by whom.")]


def adopt(
    cluster: ClusterOptions,
    selection: SelectionOptions,
    lease: LeaseOptions,
    lock: LockOptions,
    general: GeneralOptions,
    ignore_rival: IgnoreRivalOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
) -> None:
    """Clean up what another reboot coordinator left: FLUO, CLUO, kured, KRM, CRO, a FleetLock server, or an old run.

    Its annotations, labels and locks are removed. A node is uncordoned only where marks prove that the cordon is the
    coordinator's own; a person's cordon or pause stays. While its workload still runs, this refuses (exit code 6) and
    says what to remove first; --ignore-rival cleans up beside it.

    \b
    Examples:
      rollout adopt --dry-run
      rollout adopt -l pool=web --yes
    """
    from rollout.cli import wiring
    from rollout.cli.stages.gather import with_patience
    from rollout.cli.terminal import show, show_bytes
    from rollout.gather.cluster.leftovers import read_standing
    from rollout.model.json_text import json_document
    from rollout.planning.leftovers import adoption
    from rollout.report.leftovers import adopted_text, leftovers_document, leftovers_text, nothing_text

    api = wiring.cluster_api(cluster)
    standing = with_patience(lambda: read_standing(api))
    scope = _scope(api, standing, selection.selection, tuple(ignore_rival or ()))
    shown = adoption(standing, scope.nodes, whole=scope.whole)
    if not general.as_json:
        show(leftovers_text(shown, general.width))
    adopted: Adopted | None = None
    try:
        if shown.has_work and not dry_run:
            _refuse(api, scope, shown, lease.lease_namespace)
            _consent(api, shown, cluster, yes=yes, as_json=general.as_json)
            adopted = _clean(api, scope, shown, _terms(lease, lock))
    finally:
        if general.as_json:
            show_bytes(json_document(leftovers_document(shown, adopted)))
    if not general.as_json and (adopted or not shown.has_work):
        show("\n" + (adopted_text(adopted, shown) if adopted else nothing_text(shown)))
    raise typer.Exit(ExitCode.OK if dry_run else _end(shown, adopted))


def _scope(api: "ClusterApi", standing: "Standing", selection: "Selection", ignored: tuple[str, ...]) -> "Scope":
    """The nodes that are meant; all of them are the whole cluster, with the locks that belong to no node."""
    from rollout.cli.stages.gather import chosen, useless_exclusions, with_patience
    from rollout.cli.terminal import say
    from rollout.execution.rollout.adopt import Scope
    from rollout.gather.cluster.snapshot import read_nodes
    from rollout.planning.eligibility import excluded_by_name
    from rollout.planning.selector import parse_selector

    parse_selector(selection.selector)
    nodes = [written.node for written in standing.nodes]
    matching = with_patience(lambda: read_nodes(api, selection.selector)) if selection.selector else nodes
    names = chosen(nodes, matching, selection)
    if useless := useless_exclusions(nodes, selection):
        say(f"warning: {useless}")
    meant = frozenset(name for name in names if not excluded_by_name(name, selection))
    return Scope(meant, len(meant) == len(nodes), lambda shown: _refuse_running(shown, ignored))


def _refuse(api: "ClusterApi", scope: "Scope", shown: "Adoption", namespace: str) -> None:
    """`BlockedError` while the other system runs, or a rollout of ours is unfinished; `ApiError` without rights."""
    from rollout.cli.stages.gather import with_patience
    from rollout.cli.stages.refusals import refuse_missing_rights
    from rollout.execution.record.unfinished import look
    from rollout.gather.cluster.rights import adopt_rights
    from rollout.report.unfinished import heading, ways_out

    unfinished = with_patience(lambda: look(api, namespace))
    if unfinished is not None and unfinished.blocks:
        raise BlockedError(heading(unfinished), hint=f"If no process is working on it: {ways_out(unfinished)}.")
    scope.check(shown)
    systems = {lock.system for lock in shown.locks if not lock.obstacle}
    hint = "Run it as a user who has these rights; a rollout itself needs no right on what others left."
    refuse_missing_rights(api, adopt_rights(namespace, systems), hint)


def _refuse_running(shown: "Adoption", ignored: tuple[str, ...]) -> None:
    from rollout.report.leftovers import removals

    running = [workload for workload in shown.running if workload.coordinator.rival not in ignored]
    if running:
        systems = ", ".join(dict.fromkeys(workload.coordinator.rival for workload in running))
        raise BlockedError(
            f"nothing was cleaned: {systems} still runs, and would write it again",
            details=[f"{workload.place}: {command}" for workload, command in removals(running)],
            hint=f"Stop it in this order, then run this again; or clean up beside it: --ignore-rival {systems}",
        )


def _consent(api: "ClusterApi", shown: "Adoption", cluster: ClusterOptions, *, yes: bool, as_json: bool) -> None:
    """`DeclinedError` unless the operator agrees to what was shown."""
    from rollout.cli import consent, wiring
    from rollout.errors import DeclinedError
    from rollout.model.text import counted

    if yes:
        return
    if as_json or not sys.stdin.isatty():
        raise DeclinedError(
            "there is no terminal to ask for consent: nothing was changed", hint="Give --yes; or only look: --dry-run."
        )
    where = consent.place(api.server, wiring.context_of(cluster))
    locks = sum(not lock.obstacle for lock in shown.locks)
    consent.ask(f"Clean {counted(len(shown.nodes), 'node')} and remove {counted(locks, 'lock')} of {where}")


def _terms(lease: LeaseOptions, lock: LockOptions) -> "LeaseTerms":
    from rollout.cli import wiring
    from rollout.execution.lease_terms import LeaseTerms

    return LeaseTerms(lease.lease_namespace, wiring.lease_holder(), "", lock.seconds, unlock=lock.force_unlock)


def _clean(api: "ClusterApi", scope: "Scope", shown: "Adoption", terms: "LeaseTerms") -> "Adopted":
    from rollout.cli import wiring
    from rollout.execution.rollout.adopt import adopt as clean
    from rollout.report.observers import Unfailing
    from rollout.report.plain import PlainLines

    return clean(shown, scope, api, wiring.system_clock(), Unfailing(PlainLines(sys.stderr)), terms)


def _end(shown: "Adoption", adopted: "Adopted | None") -> ExitCode:
    """Whether something that a rollout of ours, or a write, should have taken back is still there."""
    from rollout.model.leftovers import System

    obstacles = any(row.obstacle for row in shown.leftovers if row.system is System.ROLLOUT)
    return ExitCode.PARTIAL if obstacles or (adopted and adopted.left) else ExitCode.OK
