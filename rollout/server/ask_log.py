"""What the log says of answers: each no once, not each time that a host asks again, however many hosts there are."""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

from rollout.ports import Clock
from rollout.server.answers import Answer, Denied, Kind
from rollout.server.requests import Ask

_Entry = TypeVar("_Entry")
# What is the same for every host: told of the first that hears it, and again after an hour.
_FOR_ALL: Final = frozenset(
    {
        *(Kind.SEMAPHORE_FULL, Kind.MAX_UNAVAILABLE, Kind.PAUSED, Kind.OUTSIDE_WINDOW),
        *(
            Kind.LOCKED_BY_ROLLOUT,
            Kind.RIVAL,
            Kind.LOCK_LOST,
            Kind.API_UNAVAILABLE,
            Kind.API_ERROR,
            Kind.INTERNAL_ERROR,
        ),
    }
)
_HOUR: Final = 3600.0
# Anybody can ask by any id and for any group: so many of these are told in an hour.
_OF_STRANGERS: Final = frozenset({Kind.UNKNOWN_ID, Kind.UNKNOWN_GROUP})
_MOST_STRANGERS: Final = 50
# Whose last answers are kept.
_MOST_HOSTS: Final = 10_000


class AskLog:
    """Tells `notice` of answers that are news. `name_of` knows nodes by the ids of their hosts, or raises `Denied`."""

    def __init__(self, clock: Clock, notice: Callable[[str], None], name_of: Callable[[str], str]) -> None:
        self._clock = clock
        self._notice = notice
        self._name_of = name_of
        self._turn = threading.Lock()
        self._kinds: dict[str, Kind] = {}
        self._told: dict[str, float] = {}
        self._strangers: dict[tuple[str, Kind], float] = {}

    def note(self, ask: Ask, answer: Answer) -> None:
        """Tell of one answer, if it is news."""
        with self._turn:
            is_news = self._is_news(ask, answer)
        if is_news:
            self._notice(f"{self._shown(ask)} asks, group {ask.group}: {answer.kind}: {answer.value}")

    def _shown(self, ask: Ask) -> str:
        try:
            return self._name_of(ask.id)
        except Denied:
            return ask.id

    def _is_news(self, ask: Ask, answer: Answer) -> bool:
        if answer.kind in _OF_STRANGERS:
            return self._is_news_of_stranger(ask, answer.kind)
        before = self._kinds.get(ask.id)
        if len(self._kinds) >= _MOST_HOSTS:
            self._kinds.clear()
        self._kinds[ask.id] = answer.kind
        if answer.kind not in _FOR_ALL:
            return before is not answer.kind
        self._told = self._of_last_hour(self._told)
        is_news = answer.value not in self._told
        self._told.setdefault(answer.value, self._clock.monotonic())
        return is_news

    def _is_news_of_stranger(self, ask: Ask, kind: Kind) -> bool:
        self._strangers = self._of_last_hour(self._strangers)
        if (ask.id, kind) in self._strangers or len(self._strangers) > _MOST_STRANGERS:
            return False
        self._strangers[ask.id, kind] = self._clock.monotonic()
        if len(self._strangers) > _MOST_STRANGERS:
            self._notice(f"more than {_MOST_STRANGERS} unknown hosts or groups in an hour: the others are not told")
            return False
        return True

    def _of_last_hour(self, entries: dict[_Entry, float]) -> dict[_Entry, float]:
        since = self._clock.monotonic() - _HOUR
        return {entry: at for entry, at in entries.items() if at > since}
