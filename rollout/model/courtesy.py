"""What is done for people and programs around a reboot: waiting, telling, labels; part of the policy."""

from dataclasses import dataclass

from rollout.model.quantity import Duration


@dataclass(frozen=True, slots=True)
class CourtesyPolicy:
    """All of it. Labels are as written, `name=value`; `wait_for_users` is the longest that users are waited for.

    `fluo_labels`: FLUO's labels of a host (id, group, version) are kept up to date as its agent would.

    The text that `wall` tells them stands in no plan and no cluster: what runs on hosts is never read from there.
    """

    drain_delay: Duration = Duration(0)
    reboot_delay: Duration = Duration(0)
    wait_for_users: Duration = Duration(0)
    wall: bool = False
    pre_reboot_node_labels: tuple[str, ...] = ()
    post_reboot_node_labels: tuple[str, ...] = ()
    fluo_labels: bool = False
