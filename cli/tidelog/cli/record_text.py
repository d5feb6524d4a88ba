"""Records as text, in the form and by the property names of kafka-console-consumer.

``timestamp ⇥ partition ⇥ offset ⇥ epoch ⇥ headers ⇥ key ⇥ value``, of which only the value is
printed unless more is asked for. Bytes go through as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.cli.failures import WrongUse
from tidelog.cli.properties import checked_names, flag
from tidelog.cli.records import ReadRecord

PRINTABLE: Final = ("timestamp", "partition", "offset", "epoch", "headers", "key", "value")
_TEXTS: Final = {
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}


@dataclass(frozen=True, slots=True)
class TextFormat:
    printed: frozenset[str] = frozenset({"value"})
    key_separator: bytes = b"\t"
    line_separator: bytes = b"\n"
    headers_separator: bytes = b","
    null_literal: bytes = b"null"

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> TextFormat:
        """From kafka-console-consumer's properties."""
        checked_names(properties, (*(f"print.{what}" for what in PRINTABLE), *_TEXTS))
        texts = {name: properties.get(name, default) for name, default in _TEXTS.items()}
        return cls(
            frozenset(
                what for what in PRINTABLE if flag(properties, f"print.{what}", what == "value")
            ),
            texts["key.separator"].encode(),
            texts["line.separator"].encode(),
            texts["headers.separator"].encode(),
            texts["null.literal"].encode(),
        )

    def line(self, record: ReadRecord) -> bytes:
        parts = [self._part(what, record) for what in PRINTABLE if what in self.printed]
        return self.key_separator.join(parts) + self.line_separator

    def _part(self, what: str, record: ReadRecord) -> bytes:
        match what:
            case "timestamp" if record.timestamp_ms is None:
                return b"NO_TIMESTAMP"
            case "timestamp":
                return f"{record.timestamp_type}:{record.timestamp_ms}".encode()
            case "partition":
                return f"Partition:{record.partition}".encode()
            case "offset":
                return f"Offset:{record.offset}".encode()
            case "epoch":
                known = record.leader_epoch is not None
                return f"Epoch:{record.leader_epoch if known else 'NOT_PRESENT'}".encode()
            case "headers":
                return self._headers(record)
            case "key":
                return self._or_null(record.key)
            case _:
                return self._or_null(record.value)

    def _headers(self, record: ReadRecord) -> bytes:
        if not record.headers:
            return b"NO_HEADERS"
        return self.headers_separator.join(
            name.encode("utf-8") + b":" + self._or_null(value) for name, value in record.headers
        )

    def _or_null(self, data: bytes | None) -> bytes:
        return self.null_literal if data is None else data


def parse_printed(entries: list[str]) -> dict[str, str]:
    """``--print key,offset`` as properties."""
    wanted = [what.strip() for entry in entries for what in entry.split(",")]
    for what in wanted:
        if what not in PRINTABLE:
            raise WrongUse(f"--print {what}: there are {', '.join(PRINTABLE)}")
    return {f"print.{what}": "true" for what in wanted}
