"""Notifications on their way: nobody waits for them, and a destination in trouble is told of once."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from rollout.adapters import notify as outbox_module
from rollout.adapters.notify import DeliveryError, Destination, Outbox
from rollout.model.notification import Note

NOTE = Note(event="held", title="1", body="")


@dataclass
class Place:
    """A destination whose every delivery does what it is told."""

    answer: Callable[[int], None] = lambda _attempt: None
    name: str = "https://a"
    attempts: int = 0
    notes: list[Note] = field(default_factory=list)

    def take(self, note: Note) -> None:
        self.attempts += 1
        self.answer(self.attempts)
        self.notes.append(note)


def outbox_to(warnings: list[str], *places: Place) -> Outbox:
    return Outbox([Destination(place.name, place.take) for place in places], warnings.append)


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox_module, "_ATTEMPT_PAUSES", (0.0, 0.0, 0.0))


@pytest.fixture
def hung() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def refuse(_attempt: int) -> None:
    raise DeliveryError("it responds with status 500")


def test_each_place_gets_each_in_order() -> None:
    places = (Place(), Place())
    warnings = list[str]()
    outbox = outbox_to(warnings, *places)
    posted = [Note(event="held", title=str(number), body="") for number in range(20)]
    for note in posted:
        outbox.post(note)
    outbox.close()
    assert [place.notes for place in places] == [posted, posted]
    assert warnings == []


def test_what_fails_is_tried_again_and_its_trouble_told_once() -> None:
    place = Place(refuse)
    warnings = list[str]()
    outbox = outbox_to(warnings, place)
    outbox.post(NOTE)
    outbox.post(NOTE)
    outbox.close()
    assert place.attempts == 6
    assert warnings == ["warning: notifications to https://a: it responds with status 500"]


def test_whatever_a_service_raises_is_trouble_of_its_own_and_its_words_are_not_shown() -> None:
    def break_down(_attempt: int) -> None:
        raise RuntimeError("https://secret")

    warnings = list[str]()
    outbox = outbox_to(warnings, Place(break_down), good := Place(name="https://b"))
    outbox.post(NOTE)
    outbox.close()
    assert warnings == ["warning: notifications to https://a: it failed (RuntimeError)"]
    assert good.notes == [NOTE]


def test_one_that_hangs_delays_nobody_and_is_told_at_the_end(hung: threading.Event) -> None:
    warnings = list[str]()
    outbox = outbox_to(
        warnings, Place(lambda _attempt: void(hung.wait(60))), good := Place(name="https://b")
    )
    for number in range(1, 11):
        outbox.post(NOTE)
        while len(good.notes) < number:
            time.sleep(0.001)
    began = time.monotonic()
    outbox.close(seconds=0.5)
    assert time.monotonic() - began < 30
    assert warnings == [
        (
            "warning: notifications to https://a: the remaining notifications are not sent, because it did not respond"
            " in time"
        )
    ]


def void(_value: object) -> None:
    """What a callback returns is nothing."""
