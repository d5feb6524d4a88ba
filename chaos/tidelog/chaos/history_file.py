"""A history as a file of lines: written while the run goes on, read to judge it.

Every line is handed to the operating system as soon as it is noted, so a run that is killed leaves
all that it knew. What such an end leaves half-written is the last line, and only that one is let
pass when it cannot be read; anything else that is wrong is a ``CorruptHistory``.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

from tidelog.chaos.history import Event, History, RunHeader, gather
from tidelog.chaos.history_lines import BadLine, decode_event, encode_event


class CorruptHistory(Exception):
    """The file is no history; the text names the file, the line and what is wrong with it."""


class HistoryWriter:
    """Appends events to a file; many threads may note at once."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("w", encoding="utf-8", newline="\n")

    def note(self, event: Event) -> None:
        line = encode_event(event) + "\n"
        with self._lock:
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        with self._lock:
            self._file.close()


def read_history(path: Path) -> History:
    """The history in a file; raises CorruptHistory, and OSError if it cannot be read."""
    events = _events(path)
    header = next(events, None)
    if header is None:
        raise CorruptHistory(f"{path} is empty: a history begins with a line that says what ran")
    if not isinstance(header, RunHeader):
        raise CorruptHistory(f"{path}, line 1: a history begins with what ran (kind run)")
    return gather(header, events)


def _events(path: Path) -> Iterator[Event]:
    with path.open("rb") as file:
        for number, raw in enumerate(file, 1):
            try:
                event = decode_event(raw.decode("utf-8"))
            except (BadLine, UnicodeDecodeError) as error:
                if number > 1 and not raw.endswith(b"\n"):
                    return  # the run ended while it wrote this line
                why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
                raise CorruptHistory(f"{path}, line {number}: {why}") from None
            if number > 1 and isinstance(event, RunHeader):
                raise CorruptHistory(f"{path}, line {number}: a second run begins here")
            yield event
