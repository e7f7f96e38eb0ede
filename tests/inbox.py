"""A real endpoint of notifications, and what it has received."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.scripted_api import Exchange, scripted

TOKEN = "s3cr3t-t0ken"
Notes = list[dict[str, Any]]


class Inbox:
    """A real endpoint, and what it has received."""

    def __init__(self, url: str) -> None:
        self.url = f"{url}/hooks/{TOKEN}?key={TOKEN}"
        self.exchanges: list[Exchange] = []
        self.arrived = threading.Condition()

    @property
    def notes(self) -> Notes:
        return [json.loads(exchange.payload) for exchange in self.exchanges]

    def events(self) -> list[str]:
        return [note["event"] for note in self.notes]

    def one(self, event: str) -> dict[str, Any]:
        (note,) = [note for note in self.notes if note["event"] == event]
        return note

    def take(self, exchange: Exchange) -> None:
        with self.arrived:
            self.exchanges.append(exchange)
            self.arrived.notify_all()

    def wait_for(self, event: str) -> None:
        with self.arrived:
            assert self.arrived.wait_for(lambda: event in self.events(), 60)


@contextmanager
def received() -> Iterator[Inbox]:
    def answer(exchange: Exchange) -> None:
        endpoint.take(exchange)
        exchange.answer(204, b"")

    with scripted(answer) as server:
        endpoint = Inbox(server.url)
        yield endpoint
