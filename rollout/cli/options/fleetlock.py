"""Options of the FleetLock server: where it listens, and how many hosts of which group may reboot at a time."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from rollout.cli.options import values
from rollout.cli.options.declaration import OWN, Flag
from rollout.errors import UsageError
from rollout.model.fleetlock import GroupRules, Groups, is_group
from rollout.model.quantity import Count, Duration


def _slots(value: str) -> str:
    """A group and its slots, as they were written."""
    name, count = _pair(value, "NAME=3, or NAME=25%")
    values.at_least_one(count)
    return f"{name}={count}"


def _selector(value: str) -> str:
    """A group and the labels of its nodes, as they were written."""
    name, selector = _pair(value, "NAME=SELECTOR: workers=node.kubernetes.io/role=worker")
    return f"{name}={values.label_selector(selector)}"


def _pair(value: str, example: str) -> tuple[str, str]:
    name, equals, rest = value.partition("=")
    if not equals or not rest.strip() or not is_group(name.strip()):
        raise ValueError(f"{value!r} names no group of FleetLock. Write it as {example}.")
    return name.strip(), rest.strip()


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where it listens, and what it grants."""

    listen: Annotated[
        str,
        Flag(OWN, "Where hosts ask: :8080 is all addresses.", "[ADDRESS]:PORT", read=values.listen_address),
    ] = "0.0.0.0:8080"
    tls_cert: Annotated[
        Path | None, Flag(OWN, "Serve HTTPS with this certificate (PEM, its chain included).", "FILE")
    ] = None
    tls_key: Annotated[Path | None, Flag(OWN, "The certificate's private key.", "FILE")] = None
    slots: Annotated[
        Count,
        Flag(
            OWN,
            "Hosts of a group that may be on their way through a reboot at once: 1, or 25% of its nodes.",
            "COUNT",
            read=values.at_least_one,
        ),
    ] = Count(1)
    group: Annotated[
        list[str] | None,
        Flag(
            OWN,
            "Slots of a group; groups that are not named are refused. Repeatable.",
            "NAME=COUNT",
            read=_slots,
        ),
    ] = None
    group_selector: Annotated[
        list[str] | None,
        Flag(OWN, "Only nodes with these labels may ask for this group. Repeatable.", "NAME=SELECTOR", read=_selector),
    ] = None
    slot_timeout: Annotated[
        Duration,
        Flag(
            OWN,
            "How long a host may take to ask again once it is drained, and to come back once its reboot is granted.",
            "DURATION",
            read=values.some_time,
        ),
    ] = Duration(3600)

    @property
    def groups(self) -> Groups:
        """Who may have how many slots."""
        counts = dict(_split(self.group))
        selectors = dict(_split(self.group_selector))
        names = dict.fromkeys((*counts, *selectors))
        rules = {
            name: GroupRules(Count.parse(counts.get(name, str(self.slots))), selectors.get(name, "")) for name in names
        }
        return Groups(GroupRules(self.slots), rules)

    @property
    def most_away(self) -> Count:
        """How many nodes may be away where nobody says it: as many as there are slots, of all groups that are named."""
        counts = [rules.slots for rules in self.groups.named.values()] or [self.slots]
        # of 100: percentages are compared by what they are of one number
        shares = [count for count in counts if count.is_share]
        return max(shares, key=lambda share: share.of(100)) if shares else Count(sum(count.of(0) for count in counts))

    def check(self) -> None:
        """`UsageError` for flags that belong together and are not."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise UsageError("--tls-cert and --tls-key belong together", hint="Give both, or neither for plain HTTP.")


def _split(written: list[str] | None) -> list[tuple[str, str]]:
    return [(name, rest) for name, _, rest in (text.partition("=") for text in written or ())]
