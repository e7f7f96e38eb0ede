"""A service that Apprise knows: chat, mail, pagers. The only importer of `apprise`, which is an extra."""

import logging
import sys
from functools import cache
from importlib import import_module
from types import ModuleType

from rollout.adapters.notify.destination import DeliveryError
from rollout.errors import UsageError
from rollout.model.notification import Note

_LOGGERS = ("apprise", "urllib3.connectionpool", "requests")


class Service:
    """One Apprise URL."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._plugin = _apprise().Apprise.instantiate(url)
        if self._plugin is None:
            raise UsageError(
                f"{name} is not a URL that Apprise understands",
                hint="See https://appriseit.com/services/ for how each service is written.",
            )
        # it would wait up to 5.5 s between two notifications, and the last one has no more time than that
        self._plugin.request_rate_per_sec = 0

    def send(self, note: Note) -> None:
        """Have Apprise deliver one; why it could not, it tells only in logs that may hold secrets."""
        if not self._plugin.notify(body=note.body, title=note.title, notify_type=note.level.value, body_format="text"):
            raise DeliveryError("it was not accepted, or the service cannot be reached")


@cache
def _apprise() -> ModuleType:
    """The library, its logs and its transport's turned off: they show URLs."""
    try:
        module = import_module("apprise")
    except ImportError as error:
        raise UsageError(
            "notifications to anything but http:// and https:// need Apprise, which is not installed",
            hint=f"{sys.executable} -m pip install 'node-rollout[notify]'",
        ) from error
    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return module
