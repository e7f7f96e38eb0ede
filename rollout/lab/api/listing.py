"""Lists: selection, pages that stay consistent while the cluster changes, and versions.

All pages of one list show the cluster as it was when the first page was read; the store rebuilds that
state from its history, and a page whose history is forgotten is answered 410 like on a real server.
"""

import binascii
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import PODS, Resource
from rollout.lab.api.selectors import Selection, parse_fields, parse_labels
from rollout.lab.api.statuses import bad_request, expired, future_version
from rollout.lab.api.store import CompactedError, Json, ObjectStore, object_key

_TOKEN_VERSION = "meta.k8s.io/v1"  # noqa: S105 - the format of a continue token, not a secret
_INCONSISTENT = -1
_EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list "
    "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
    "the results. Continuing with the provided token results in an inconsistent list - objects that were "
    "created, modified, or deleted between the time the first chunk was returned and now may show up in the list."
)


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list; `remaining` is None where a real server does not count."""

    items: list[Json]
    revision: int
    token: str = ""
    remaining: int | None = None

    @property
    def metadata(self) -> Json:
        """The metadata of the list object."""
        metadata: Json = {"resourceVersion": str(self.revision)}
        if self.token:
            metadata["continue"] = self.token
        if self.remaining is not None:
            metadata["remainingItemCount"] = self.remaining
        return metadata


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a page begins: behind a key, at a revision (None: now)."""

    after: str = ""
    revision: int | None = None


def selection_of(query: Mapping[str, str], resource: Resource) -> Selection:
    """Return the selectors of a query; 400 for those that cannot be understood."""
    labels = parse_labels(query.get("labelSelector", ""))
    return Selection(labels, parse_fields(query.get("fieldSelector", ""), resource))


def whole_number(query: Mapping[str, str], name: str) -> int:
    """Return a number from the query, 0 where it is absent; 400 for anything else."""
    text = query.get(name, "")
    try:
        return int(text) if text else 0
    except ValueError as error:
        message = f'Invalid value: "{text}": strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(f"{name}: {message}") from error


def list_page(store: ObjectStore, target: Target, resource: Resource, query: Mapping[str, str]) -> Page:
    """Answer a list request."""
    selection, start = selection_of(query, resource), _start(store, query)
    limit = max(0, whole_number(query, "limit"))
    whole_number(query, "timeoutSeconds")
    if query.get("resourceVersion") == "0" and not query.get("continue"):
        # Served from the watch cache, which knows no pages.
        limit = 0
    revision = store.revision if start.revision is None else start.revision
    # One more than the page has: whether anything is left.
    wanted = limit + 1 if limit and selection.everything else None
    selected = selection.of(_candidates(store, target, resource, selection, start.after, revision, wanted))
    if not limit or len(selected) <= limit:
        return Page(selected, revision)
    last = object_key(selected[limit - 1])
    # The rest is counted only where nothing is selected away.
    remaining = store.count_at(resource, revision, target.namespace, after=last) if selection.everything else None
    return Page(selected[:limit], revision, _token(revision, last), remaining)


def _candidates(
    store: ObjectStore,
    target: Target,
    resource: Resource,
    selection: Selection,
    after: str,
    revision: int,
    limit: int | None,
) -> list[Json]:
    """Objects behind a key among which the selected ones are, in key order; 410 where that is forgotten."""
    node = selection.exact("spec.nodeName")
    if resource is PODS and node and revision == store.revision:
        pods = (pod for pod in store.pods_on(node) if object_key(pod) > after)
        return [pod for pod in pods if target.namespace in {"", pod["metadata"]["namespace"]}]
    try:
        return store.items_at(resource, revision, target.namespace, after=after, limit=limit)
    except CompactedError as error:
        raise expired(_EXPIRED, {"continue": _token(_INCONSISTENT, after)}) from error


def _start(store: ObjectStore, query: Mapping[str, str]) -> _Start:
    if query.get("continue"):
        return _continued(query["continue"])
    asked = whole_number(query, "resourceVersion")
    if asked > store.revision:
        raise future_version(asked, store.revision)
    return _Start()


class _Token(msgspec.Struct, frozen=True):
    v: str
    rv: int
    start: str


def _token(revision: int, after: str) -> str:
    encoded = msgspec.json.encode(_Token(_TOKEN_VERSION, revision, f"{after}\0"))
    return urlsafe_b64encode(encoded).decode().rstrip("=")


def _continued(text: str) -> _Start:
    try:
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise bad_request("invalid continue token: continue key is not valid: illegal base64 data") from error
    try:
        token = msgspec.json.decode(raw, type=_Token)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        first = chr(raw[0]) if raw else ""
        why = f"invalid character '{first}' looking for beginning of value"
        raise bad_request(f"invalid continue token: continue key is not valid: {why}") from error
    revision = None if token.rv == _INCONSISTENT else token.rv
    return _Start(token.start.removesuffix("\0"), revision)
