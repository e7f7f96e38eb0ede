"""What is done for people and programs around a reboot: waiting, telling, labels; part of the policy."""

from dataclasses import dataclass
from enum import StrEnum

from rollout.model.quantity import Duration


class Compat(StrEnum):
    """Another reboot coordinator whose annotations and labels are written as well."""

    FLUO = "fluo"
    KURED = "kured"


@dataclass(frozen=True, slots=True)
class CourtesyPolicy:
    """All of it. Labels are as written, `name=value`; `wait_for_users` is the longest that users are waited for.

    The text that `wall` tells them stands in no plan and no cluster: what runs on hosts is never read from there.
    """

    drain_delay: Duration = Duration(0)
    reboot_delay: Duration = Duration(0)
    wait_for_users: Duration = Duration(0)
    wall: bool = False
    pre_reboot_node_labels: tuple[str, ...] = ()
    post_reboot_node_labels: tuple[str, ...] = ()
    annotate_compat: tuple[Compat, ...] = ()
