"""The newest OS version in the cluster, and how hosts compare with it.

Only versions of one stream are compared. Flatcar (second number) and Fedora CoreOS (third) write
the channel into the version.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from rollout.model.cluster import Node
from rollout.model.detection import short_checksum
from rollout.model.host import (
    HostFacts,
    HostObservation,
    UpdateOperation,
    UpdateStanding,
    UpdateState,
)
from rollout.model.node_marks import last_result
from rollout.model.progress import Outcome
from rollout.model.quantity import Duration
from rollout.model.timestamps import whole_second
from rollout.model.update_checks import LONGEST_SILENCE, CheckState


class _VersionScheme(Struct, frozen=True):
    length: int
    channel_index: int
    channels: Mapping[int, str]


_FLATCAR = _VersionScheme(
    length=3, channel_index=1, channels={0: "alpha", 1: "beta", 2: "stable", 3: "lts"}
)
_FEDORA = _VersionScheme(length=4, channel_index=2, channels={1: "next", 2: "testing", 3: "stable"})
# Other operating systems' versions have no known order.
_SCHEMES = {"flatcar": _FLATCAR, "coreos": _FLATCAR, "fedora": _FEDORA}
# By the start of a Node's osImage.
_IMAGES = {
    "Flatcar Container Linux": "flatcar",
    "Container Linux by CoreOS": "coreos",
    "Fedora CoreOS": "fedora",
}
# Kubelets may write anything.
_NUMBER = r"[0-9]{1,18}"
_VERSION_IN_IMAGE = re.compile(rf"(?<![\w.]){_NUMBER}(?:\.{_NUMBER})+(?:[-+~.][-+~.\w]*)?(?!\w)")
# A suffix such as +nightly-20250102 gives no order.
_NUMBERS = re.compile(rf"({_NUMBER}(?:\.{_NUMBER})*)(?:[-+~].*)?")
_UPDATING = frozenset(
    {
        UpdateOperation.AVAILABLE,
        UpdateOperation.DOWNLOADING,
        UpdateOperation.VERIFYING,
        UpdateOperation.FINALIZING,
    }
)


class Stream(Struct, frozen=True):
    os_id: str
    # Or the update group; empty if unknown.
    channel: str = ""


class KnownImages(Struct, frozen=True):
    """Digests of bootc's images, by stream and version.

    Digests have no order, but hosts keep the `older` ones that they replaced.
    """

    present: Mapping[tuple[Stream, str], frozenset[str]] = field(default_factory=dict)
    older: frozenset[str] = frozenset()

    @classmethod
    def of(cls, observations: Iterable[HostObservation]) -> "KnownImages":
        present: dict[tuple[Stream, str], set[str]] = {}
        older: set[str] = set()
        for facts in observations:
            if not isinstance(facts, HostFacts) or facts.image_sign is None:
                continue
            sign = facts.image_sign
            stream_and_version = (_stream_of_host(facts), facts.running_version)
            images = present.setdefault(stream_and_version, set())
            images.add(sign.current)
            if not sign.fallback_is_newer:
                older.add(sign.fallback)
            # An image named by its digest has the version of the current one.
            is_of_same_version = sign.version == short_checksum(sign.target)
            if sign.is_needed and is_of_same_version:
                images.add(sign.target)
                older.add(sign.current)
        frozen = {key: frozenset(digests) for key, digests in present.items()}
        return cls(frozen, frozenset(older))

    def possibly_newest(self, facts: HostFacts) -> frozenset[str]:
        """Return the images of the host's version that no host has replaced."""
        key = (_stream_of_host(facts), facts.running_version)
        return self.present.get(key, frozenset[str]()) - self.older


NO_IMAGES: Final = KnownImages()


class KnownVersions(Struct, frozen=True):
    """The versions that hosts run or have staged (`present`), by stream.

    A `replaced` one has an update on some host, so it is not the newest.
    """

    present: Mapping[Stream, frozenset[str]] = field(default_factory=dict)
    replaced: Mapping[Stream, frozenset[str]] = field(default_factory=dict)
    images: KnownImages = NO_IMAGES

    @classmethod
    def of(
        cls, nodes: Iterable[Node], observations: Mapping[str, HostObservation]
    ) -> "KnownVersions":
        present: dict[Stream, set[str]] = {}
        replaced: dict[Stream, set[str]] = {}
        for node in nodes:
            facts = observations.get(node.name)
            if not isinstance(facts, HostFacts):
                for stream, version in _find_in_os_image(node):
                    present.setdefault(stream, set()).add(version)
                continue
            running = facts.running_version
            staged = facts.detection.staged_version
            for version in (running, staged):
                if version:
                    present.setdefault(_stream_of_version(facts, version), set()).add(version)
            if staged and not _is_downgrade(running, staged):
                stream = _stream_of_version(facts, staged)
                replaced.setdefault(stream, set()).add(running)
        return cls(_frozen(present), _frozen(replaced), KnownImages.of(observations.values()))

    def newest(self, facts: HostFacts) -> str:
        """Return the newest version of the host's stream, or empty."""
        stream = _stream_of_host(facts)
        present = self.present.get(stream, frozenset[str]())
        if stream.os_id in _SCHEMES:
            return _only_one_or_empty(_with_highest_numbers(present))
        # Without an order, a version that an update replaces is older.
        return _only_one_or_empty(present - self.replaced.get(stream, frozenset[str]()))

    def after_staged(self, facts: HostFacts) -> str:
        """Return the newest version if the host needs another update first, or empty.

        Its staged version is then a step, which the update server requires.
        """
        newest = self.newest(facts)
        staged_numbers = _numbers(facts.detection.staged_version)
        is_ordered = facts.os_id in _SCHEMES and bool(staged_numbers)
        if not is_ordered:
            return ""
        return newest if staged_numbers < _numbers(newest) else ""

    def standing(
        self, node: Node, facts: HostFacts, longest_silence: Duration = LONGEST_SILENCE
    ) -> UpdateStanding:
        checks = facts.checks.check_state(longest_silence)
        compared, newest = self._compare_with_newest(facts, checks)
        standing = UpdateStanding(
            _update_state(facts.update.operation, compared, checks),
            newest,
            behind=compared is UpdateState.BEHIND and not facts.detection.needs_reboot,
            checks=checks,
            check_unit=facts.checks.unit,
            last_checked=whole_second(facts.checks.last) if facts.checks.last else "",
        )
        if standing.state is UpdateState.UPDATING:
            return standing
        result = last_result(node)
        if not _is_rolled_back(result, facts):
            return standing
        return replace(
            standing,
            state=UpdateState.ROLLED_BACK,
            rolled_back_from=result["from"],
            rolled_back_at=result.get("at", ""),
        )

    def _compare_with_newest(self, facts: HostFacts, checks: CheckState) -> tuple[UpdateState, str]:
        """IDLE means that the newest version or image is unknown."""
        newest = self.newest(facts)
        compared = _compare_versions(facts, newest)
        if compared is not UpdateState.UP_TO_DATE:
            return compared, newest
        if facts.image_sign:
            return self._compare_image(facts, facts.image_sign.current)
        if not _has_all_known_updates(facts, checks):
            return UpdateState.IDLE, newest
        return UpdateState.UP_TO_DATE, newest

    def _compare_image(self, facts: HostFacts, image: str) -> tuple[UpdateState, str]:
        possibly_newest = self.images.possibly_newest(facts)
        if possibly_newest == {image}:
            return UpdateState.UP_TO_DATE, facts.running_version
        if len(possibly_newest) == 1:
            return UpdateState.BEHIND, short_checksum(*possibly_newest)
        return UpdateState.IDLE, ""


NO_VERSIONS = KnownVersions()


def update_standings(
    nodes: Iterable[Node], observations: Mapping[str, HostObservation], longest_silence: Duration
) -> Mapping[str, UpdateStanding]:
    """Leave out hosts with a staged update."""
    nodes = tuple(nodes)
    known = KnownVersions.of(nodes, observations)
    standing_by_node: dict[str, UpdateStanding] = {}
    for node in nodes:
        facts = observations.get(node.name)
        if isinstance(facts, HostFacts) and facts.counts_as_unstaged:
            standing_by_node[node.name] = known.standing(node, facts, longest_silence)
    return standing_by_node


def _update_state(
    operation: UpdateOperation, compared: UpdateState, checks: CheckState
) -> UpdateState:
    # An engine that works on one update for days is stuck.
    if operation in _UPDATING and checks is not CheckState.STALE:
        return UpdateState.UPDATING
    if operation is UpdateOperation.REPORTING_ERROR:
        return UpdateState.CHECK_FAILED
    if compared is UpdateState.BEHIND or not checks.is_trouble:
        return compared
    return UpdateState.NOT_CHECKING


def _with_highest_numbers(versions: Iterable[str]) -> frozenset[str]:
    """Return several if they differ only in a suffix."""
    numbers_by_version = {version: _numbers(version) for version in versions}
    highest = max(numbers_by_version.values(), default=())
    if not highest:
        return frozenset()
    return frozenset(
        version for version, numbers in numbers_by_version.items() if numbers == highest
    )


def _is_downgrade(running: str, staged: str) -> bool:
    numbers = _numbers(staged)
    return bool(numbers) and numbers < _numbers(running)


def _only_one_or_empty(versions: frozenset[str]) -> str:
    return next(iter(versions)) if len(versions) == 1 else ""


def _frozen(sets: Mapping[Stream, set[str]]) -> Mapping[Stream, frozenset[str]]:
    return {stream: frozenset(versions) for stream, versions in sets.items()}


def _is_rolled_back(result: Mapping[str, str], facts: HostFacts) -> bool:
    is_rollback = result.get("outcome") == Outcome.ROLLED_BACK and bool(result.get("from"))
    return is_rollback and result.get("version") == facts.running_version


def _compare_versions(facts: HostFacts, newest: str) -> UpdateState:
    """Return UP_TO_DATE or BEHIND; IDLE if not comparable."""
    running = facts.running_version
    if not running or not newest:
        return UpdateState.IDLE
    if running == newest:
        return UpdateState.UP_TO_DATE
    # Without an order, the newest is the only version that no update replaces.
    if facts.os_id not in _SCHEMES:
        return UpdateState.BEHIND
    running_numbers = _numbers(running)
    newest_numbers = _numbers(newest)
    if not running_numbers or running_numbers == newest_numbers:
        return UpdateState.IDLE
    is_behind = running_numbers < newest_numbers
    return UpdateState.BEHIND if is_behind else UpdateState.UP_TO_DATE


def _has_all_known_updates(facts: HostFacts, checks: CheckState) -> bool:
    """Whether a host with the newest version also has all updates, as far as known.

    Package updates change no version such as Ubuntu's 24.04, so the host must look for them.
    """
    has_channel = bool(_channel(facts.os_id, facts.running_version))
    tells_its_checks = checks is not CheckState.UNKNOWN
    return has_channel or tells_its_checks


def _stream_of_host(facts: HostFacts) -> Stream:
    return Stream(facts.os_id, facts.group or _channel(facts.os_id, facts.running_version))


def _stream_of_version(facts: HostFacts, version: str) -> Stream:
    scheme = _SCHEMES.get(facts.os_id)
    channels = scheme.channels.values() if scheme else ()
    # A custom group may serve any channel.
    is_custom_group = bool(facts.group) and facts.group not in channels
    if is_custom_group:
        return Stream(facts.os_id, facts.group)
    return Stream(facts.os_id, _channel(facts.os_id, version) or facts.group)


def _channel(os_id: str, version: str) -> str:
    scheme = _SCHEMES.get(os_id)
    numbers = _numbers(version)
    if scheme is None or len(numbers) != scheme.length:
        return ""
    return scheme.channels.get(numbers[scheme.channel_index], "")


def _numbers(version: str) -> tuple[int, ...]:
    """Return (4081, 2, 0) for `4081.2.0+nightly`; empty for other forms."""
    match = _NUMBERS.fullmatch(version)
    return tuple(map(int, match[1].split("."))) if match else ()


def _find_in_os_image(node: Node) -> Iterator[tuple[Stream, str]]:
    match = _VERSION_IN_IMAGE.search(node.os_image)
    if match is None:
        return
    version = match[0]
    for image_name, os_id in _IMAGES.items():
        if node.os_image.startswith(image_name):
            yield Stream(os_id, _channel(os_id, version)), version
