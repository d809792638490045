"""What card-run told so far, read from its events (card-run(1) `--events`): the one machine form of a run's fate."""

import json
import os
from typing import Any

from launcher.executor import card
from oci.refusal import Refusal

_CHUNK = 65536


class Told:
    """A run's events as they come; `over` once card-run has closed them."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.over = False
        self.started: dict[str, Any] | None = None
        self.refusals: tuple[Refusal, ...] = ()
        self.receipt: dict[str, Any] | None = None
        self.notes: list[str] = []
        self._rest = b""
        os.set_blocking(fd, False)

    def read(self) -> None:
        """Take in what there is by now, without waiting for more."""
        while not self.over:
            try:
                data = os.read(self.fd, _CHUNK)
            except BlockingIOError:
                return
            if not data:
                self.close()
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line))

    def close(self) -> None:
        """Hear no more; harmless when said twice."""
        if not self.over:
            self.over = True
            os.close(self.fd)

    def _take(self, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "note":
            self.notes.append(event["text"])
        elif kind == "refused":
            self.refusals += tuple(card.own(Refusal.from_json(one)) for one in event["refusals"])
        elif kind == "started":
            self.started = event
        elif kind == "ended":
            self.receipt = event["receipt"]
