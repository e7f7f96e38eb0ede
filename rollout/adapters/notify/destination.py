"""What notifications are sent to, whatever it is."""

from typing import Protocol

from rollout.model.notification import Note


class DeliveryError(Exception):
    """A notification did not arrive; the message holds no secret. `final`: trying again would not help."""

    def __init__(self, message: str, *, final: bool = False) -> None:
        super().__init__(message)
        self.final = final


class Destination(Protocol):
    """One place that notifications go to."""

    @property
    def name(self) -> str:
        """What it is called, without its secrets."""
        ...

    def send(self, note: Note) -> None:
        """Deliver one; `DeliveryError` where it did not arrive."""
        ...


def deliver(destination: Destination, note: Note) -> None:
    """Send one; `DeliveryError` whatever goes wrong: Apprise's services raise what they like, with URLs in it."""
    try:
        destination.send(note)
    except DeliveryError:
        raise
    except Exception as error:  # noqa: BLE001 - see above
        raise DeliveryError(f"it failed ({type(error).__name__})") from None
