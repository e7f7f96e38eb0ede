"""The rules of a rollout as flags: plan and apply take them, and a saved plan holds them."""

from dataclasses import dataclass, field, replace
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.courtesy import CourtesyOptions
from rollout.cli.options.declaration import DRAIN, NODES, PATIENCE, WAVES, Flag
from rollout.cli.options.nodes import DetectOption, IncludeHeldOption, SkipBlockedOption
from rollout.model.policy import ControlPlaneOrder, DrainPolicy, Policy, Pool, Sharing, Strategy
from rollout.model.quantity import LONGEST, Count, Duration

_DRAIN = DrainPolicy()
_POLICY = Policy()


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """The rules of a rollout."""

    max_unavailable: Annotated[
        Count,
        Flag(
            WAVES,
            "Most nodes unavailable at once, including those that already are: 3, or 25% of the selected.",
            "COUNT",
            read=values.at_least_one,
        ),
    ] = _POLICY.max_unavailable
    canary: Annotated[int, Flag(WAVES, "Reboot this many nodes first, one at a time.", "N", least=0)] = _POLICY.canary
    strategy: Annotated[
        Strategy,
        Flag(WAVES, "Wave after wave; or rolling: begin the next node as soon as one is back and its pods are."),
    ] = _POLICY.strategy
    spread_by: Annotated[
        str,
        Flag(WAVES, "Keep a wave within one value of this label: one zone at a time.", "LABEL", read=values.label_name),
    ] = _POLICY.spread_by
    control_plane: Annotated[ControlPlaneOrder, Flag(WAVES, "When to reboot control-plane nodes, one at a time.")] = (
        _POLICY.control_plane
    )
    control_plane_selector: Annotated[
        str,
        Flag(
            WAVES,
            "Nodes of the control plane besides those whose role label or taint says so: node.kubernetes.io/controller "
            "for Typhoon.",
            "SELECTOR",
            read=values.label_selector,
        ),
    ] = _POLICY.control_plane_selector
    sharing: Annotated[
        Sharing,
        Flag(
            WAVES,
            "How nodes whose pods share a disruption budget share a wave: by the rate at which it lets pods go, or "
            "only where it lets all of them go at once.",
        ),
    ] = _POLICY.sharing
    include_cordoned: Annotated[
        bool, Flag(NODES, "Also reboot nodes that an operator cordoned; they stay cordoned.")
    ] = _POLICY.include_cordoned
    reboot_idle: Annotated[bool, Flag(NODES, "Also reboot nodes with no update staged: a rolling reboot.")] = (
        _POLICY.reboot_idle
    )
    skip_blocked: SkipBlockedOption = _POLICY.skip_blocked
    include_held: IncludeHeldOption = _POLICY.include_held
    # On for whoever gives flags; off for documents that do not speak of it.
    prefer_no_schedule_taint: Annotated[
        bool,
        Flag(
            DRAIN,
            "Taint nodes that wait for their turn PreferNoSchedule, so that evicted pods go to nodes that are done.",
            negated=True,
        ),
    ] = True
    exclude_from_load_balancers: Annotated[
        Duration,
        Flag(
            DRAIN,
            "Take a node out of external load balancers, and wait this long before its drain; 0s: leave it in.",
            "DURATION",
            read=values.duration,
        ),
    ] = _POLICY.exclude_from_load_balancers
    max_failures: Annotated[
        Count, Flag(WAVES, "Start no further node once this many failed.", "COUNT", read=values.at_least_one)
    ] = _POLICY.max_failures
    drain_timeout: Annotated[
        Duration, Flag(DRAIN, "How long a node's pods may take to leave.", "DURATION", read=values.some_time)
    ] = _DRAIN.timeout
    grace_period: Annotated[
        int | None,
        Flag(DRAIN, "Seconds that a pod gets to terminate. Default: the pod's own.", "SECONDS", least=0, most=LONGEST),
    ] = _DRAIN.grace_period
    force: Annotated[bool, Flag(DRAIN, "Evict pods that nothing will start again.")] = _DRAIN.force
    delete_emptydir_data: Annotated[bool, Flag(DRAIN, "Evict pods that keep data on the node.", negated=True)] = (
        _DRAIN.delete_emptydir_data
    )
    disable_eviction: Annotated[
        bool, Flag(DRAIN, "Delete pods instead of evicting them: disruption budgets are ignored.")
    ] = _DRAIN.disable_eviction
    pod_selector: Annotated[
        str,
        Flag(
            DRAIN,
            "Evict only pods with these labels; the reboot ends the others, ignoring their budgets.",
            "SELECTOR",
            read=values.label_selector,
        ),
    ] = _DRAIN.pod_selector
    skip_wait_for_delete_timeout: Annotated[
        int,
        Flag(
            DRAIN,
            "Do not wait for pods that should have been gone for longer than this; 0 waits for all.",
            "SECONDS",
            least=0,
            most=LONGEST,
        ),
    ] = _DRAIN.skip_wait_for_delete_timeout
    reboot_timeout: Annotated[
        Duration, Flag(PATIENCE, "How long a host may take to come back.", "DURATION", read=values.some_time)
    ] = _POLICY.reboot_timeout
    ready_timeout: Annotated[
        Duration, Flag(PATIENCE, "How long it may then take to be Ready.", "DURATION", read=values.some_time)
    ] = _POLICY.ready_timeout
    settle_timeout: Annotated[
        Duration,
        Flag(
            PATIENCE,
            "How long the moved pods may take to be available before the next wave.",
            "DURATION",
            read=values.duration,
        ),
    ] = _POLICY.settle_timeout
    detect: DetectOption = None
    courtesy: CourtesyOptions = field(default_factory=CourtesyOptions)

    def with_pools(self, pools: tuple[Pool, ...]) -> Policy:
        """The same, as the plan records it, with the settings file's pools."""
        return replace(self.policy, pools=pools)

    @property
    def policy(self) -> Policy:
        """The rules without pools."""
        return Policy(
            max_unavailable=self.max_unavailable,
            canary=self.canary,
            spread_by=self.spread_by,
            control_plane=self.control_plane,
            control_plane_selector=self.control_plane_selector,
            include_cordoned=self.include_cordoned,
            reboot_idle=self.reboot_idle,
            skip_blocked=self.skip_blocked,
            include_held=self.include_held,
            sharing=self.sharing,
            prefer_no_schedule_taint=self.prefer_no_schedule_taint,
            exclude_from_load_balancers=self.exclude_from_load_balancers,
            drain=self._drain,
            reboot_timeout=self.reboot_timeout,
            ready_timeout=self.ready_timeout,
            settle_timeout=self.settle_timeout,
            max_failures=self.max_failures,
            strategy=self.strategy,
            detect=values.parsed_sources(self.detect),
            courtesy=self.courtesy.policy,
        )

    @property
    def _drain(self) -> DrainPolicy:
        return DrainPolicy(
            timeout=self.drain_timeout,
            grace_period=self.grace_period,
            force=self.force,
            delete_emptydir_data=self.delete_emptydir_data,
            disable_eviction=self.disable_eviction,
            pod_selector=self.pod_selector,
            skip_wait_for_delete_timeout=self.skip_wait_for_delete_timeout,
        )
