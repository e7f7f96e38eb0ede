"""Options of what is done for people and programs around a reboot; a part of the rules."""

from dataclasses import dataclass
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import COURTESY, Flag
from rollout.cli.options.nodes import names
from rollout.model.courtesy import CourtesyPolicy
from rollout.model.quantity import Duration

_COURTESY = CourtesyPolicy()


@dataclass(frozen=True, slots=True)
class CourtesyOptions:
    """Delays, logged-in users, labels, and what others read."""

    drain_delay: Annotated[
        Duration,
        Flag(COURTESY, "How long to wait between the cordon and the first eviction.", "DURATION", read=values.duration),
    ] = _COURTESY.drain_delay
    reboot_delay: Annotated[
        Duration,
        Flag(
            COURTESY, "How long to wait between the end of the drain and the reboot.", "DURATION", read=values.duration
        ),
    ] = _COURTESY.reboot_delay
    wait_for_users: Annotated[
        Duration,
        Flag(
            COURTESY,
            "Before a reboot, wait at most this long until nobody is logged in on the host; then go on.",
            "DURATION",
            read=values.duration,
        ),
    ] = _COURTESY.wait_for_users
    wall: Annotated[bool, Flag(COURTESY, "Tell logged-in users of the reboot (wall), before they are waited for.")] = (
        _COURTESY.wall
    )
    pre_reboot_node_labels: Annotated[
        list[str] | None,
        Flag(
            COURTESY,
            "Labels that a node has from its cordon on; what they replace is put back. Comma-separated, repeatable.",
            "NAME=VALUE",
            read=values.node_labels,
        ),
    ] = None
    post_reboot_node_labels: Annotated[
        list[str] | None,
        Flag(
            COURTESY,
            "Labels that a node keeps once it is rebooted, proven and given back.",
            "NAME=VALUE",
            read=values.node_labels,
        ),
    ] = None
    fluo_labels: Annotated[
        bool, Flag(COURTESY, "Keep the labels id, group and version up to date, as FLUO's agent does.")
    ] = _COURTESY.fluo_labels

    @property
    def policy(self) -> CourtesyPolicy:
        """The same, as the plan records it; `UsageError` for a label with two values."""
        from rollout.planning.selector import node_labels

        before, after = names(self.pre_reboot_node_labels), names(self.post_reboot_node_labels)
        for written in (before, after):
            node_labels(written)
        return CourtesyPolicy(
            drain_delay=self.drain_delay,
            reboot_delay=self.reboot_delay,
            wait_for_users=self.wait_for_users,
            wall=self.wall,
            pre_reboot_node_labels=before,
            post_reboot_node_labels=after,
            fluo_labels=self.fluo_labels,
        )
