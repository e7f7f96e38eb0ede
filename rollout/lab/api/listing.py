"""Lists: selection, and pages that show the cluster as it was when the first of them was read."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count

from rollout.lab.api.requests import Target
from rollout.lab.api.resources import PODS, Resource
from rollout.lab.api.selectors import Selection, selection_of
from rollout.lab.api.statuses import bad_request, expired
from rollout.lab.api.store import Json, ObjectStore

# A further page may be asked for again, after a lost answer; for all of them a real server has minutes.
_KEPT = 1000
_EXPIRED = "The provided continue parameter is too old to display a consistent list result."


@dataclass(frozen=True, slots=True)
class Page:
    """One answer to a list: what was selected at a revision, and which part of it this is (`limit` 0: the rest)."""

    selected: list[Json]
    revision: int
    start: int = 0
    limit: int = 0
    token: str = ""

    @property
    def items(self) -> list[Json]:
        """The objects of this page."""
        return self.selected[self.start : self.start + self.limit if self.limit else None]

    @property
    def metadata(self) -> Json:
        """The metadata of the list object."""
        return {"resourceVersion": str(self.revision), **({"continue": self.token} if self.token else {})}


class Lists:
    """Answers lists; keeps what was selected for the pages that follow."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._tokens = count(1)
        self._following: dict[str, Page] = {}

    def page(self, target: Target, resource: Resource, query: Mapping[str, str]) -> Page:
        """Answer a list request; 410 for a token whose list is forgotten."""
        limit, token = max(0, whole_number(query, "limit")), query.get("continue")
        if token:
            before = self._following.get(token)
            if before is None or before.revision < self._store.compacted:
                raise expired(_EXPIRED)
            selected, revision, start = before.selected, before.revision, before.start
        else:
            selected = self._selected(target, resource, selection_of(query, resource))
            revision, start = self._store.revision, 0
            if query.get("resourceVersion") == "0":
                # Served from the watch cache, which knows no pages.
                limit = 0
        page = Page(selected, revision, start, limit)
        return self._continued(page) if limit and start + limit < len(selected) else page

    def _continued(self, page: Page) -> Page:
        """Return the page with the token of the next one."""
        token = f"{page.revision}-{next(self._tokens)}"
        self._following[token] = Page(page.selected, page.revision, page.start + page.limit)
        if len(self._following) > _KEPT:
            del self._following[next(iter(self._following))]
        return Page(page.selected, page.revision, page.start, page.limit, token)

    def _selected(self, target: Target, resource: Resource, selection: Selection) -> list[Json]:
        if resource is PODS and selection.node:
            pods = self._store.pods_on(selection.node)
            return selection.of(pod for pod in pods if target.namespace in {"", pod["metadata"]["namespace"]})
        return selection.of(self._store.items(resource, target.namespace))


def whole_number(query: Mapping[str, str], name: str) -> int:
    """Return a number from the query, 0 where it is absent; 400 for anything else."""
    text = query.get(name, "")
    try:
        return int(text) if text else 0
    except ValueError as error:
        message = f'Invalid value: "{text}": strconv.ParseInt: parsing "{text}": invalid syntax'
        raise bad_request(f"{name}: {message}") from error
