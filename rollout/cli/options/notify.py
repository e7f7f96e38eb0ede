"""Options of notifications: where to, and of what. None of it stands in a plan, a record or a journal."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rollout.cli.options import values
from rollout.cli.options.declaration import NOTIFICATIONS, Flag
from rollout.errors import UsageError
from rollout.model.notification import NotifyEvent
from rollout.model.quantity import Duration

if TYPE_CHECKING:
    from rollout.adapters.notify.destination import Destination

_COMMENT = "#"


@dataclass(frozen=True, repr=False, slots=True)
class UrlFile:
    """The URLs that a file holds; secrets, and so never shown."""

    urls: tuple[str, ...]


def _urls(value: list[str] | None) -> list[str]:
    """URLs that can be sent to, as they were written. None of them is part of a complaint."""
    urls = value or []
    try:
        _destinations(urls)
    except UsageError as error:
        raise typer.BadParameter(f"{error.message}. {error.hint}") from None
    return urls


def _destinations(urls: list[str]) -> "tuple[Destination, ...]":
    if not urls:
        return ()
    from rollout.adapters.notify.urls import destinations

    return destinations(urls)


def _url_file(value: str | UrlFile) -> UrlFile:
    """A file with a URL a line, read."""
    if isinstance(value, UrlFile):
        return value
    lines = (line.strip() for line in _content(value).splitlines())
    urls = [line for line in lines if line and not line.startswith(_COMMENT)]
    try:
        _destinations(urls)
    except UsageError as error:
        raise ValueError(f"{value}: {error.message}. {error.hint}") from None
    return UrlFile(tuple(urls))


def _content(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None


def _events(value: str) -> str:
    """Words of events, separated by commas, as they were written."""
    known = list(NotifyEvent)
    for word in _words(value):
        if word not in known:
            raise ValueError(f"{word!r} is not an event. The events are {', '.join(known)}.")
    return value


def _words(value: str) -> list[str]:
    return [word for part in value.split(",") if (word := part.strip())]


@dataclass(frozen=True, repr=False, slots=True)
class NotifyOptions:
    """Who hears of a rollout that nobody watches."""

    notify: Annotated[
        list[str] | None,
        Flag(
            NOTIFICATIONS,
            "Send notifications there: https://… gets JSON, an Apprise URL (slack://…, mailto://…) a text. Repeatable. "
            "A secret: better in ROLLOUT_NOTIFY or --notify-file, where no list of processes shows it.",
            "URL",
            check=_urls,
        ),
    ] = None
    notify_file: Annotated[
        UrlFile | None, Flag(NOTIFICATIONS, "File with such URLs, one a line.", "FILE", read=_url_file)
    ] = None
    notify_on: Annotated[
        list[str] | None,
        Flag(
            NOTIFICATIONS,
            f"Only of these events: {', '.join(NotifyEvent)}. Comma-separated, repeatable. Default: all.",
            "EVENTS",
            read=_events,
        ),
    ] = None
    notify_held_after: Annotated[
        Duration,
        Flag(
            NOTIFICATIONS,
            "How long an eviction may be held before there is a notification of it.",
            "DURATION",
            read=values.some_time,
        ),
    ] = Duration(600)
    notify_cluster: Annotated[
        str,
        Flag(
            NOTIFICATIONS,
            "How notifications call this cluster.",
            "NAME",
            read=values.one_line,
            superseded_by="cluster-name",
        ),
    ] = ""

    @property
    def urls(self) -> tuple[str, ...]:
        """Every URL."""
        return (*(self.notify or ()), *(self.notify_file.urls if self.notify_file else ()))

    @property
    def events(self) -> frozenset[NotifyEvent]:
        """What there are notifications of."""
        words = [word for part in self.notify_on or () for word in _words(part)]
        return frozenset(map(NotifyEvent, words)) if words else frozenset(NotifyEvent)
