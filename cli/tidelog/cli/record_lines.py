"""Lines of text to records, by the rules and the property names of kafka-console-producer.

A line is ``headers ⇥ key ⇥ value``, of which the first two are there only if asked for. All
separators can be changed. Bytes go through as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.cli.failures import WrongUse
from tidelog.cli.properties import checked_names, flag
from tidelog.cli.records import BadRecord, Headers, NewRecord

_TEXTS: Final = {
    "key.separator": "\t",
    "headers.delimiter": "\t",
    "headers.separator": ",",
    "headers.key.separator": ":",
    "null.marker": "",
}
_FLAGS: Final = ("parse.key", "parse.headers", "ignore.error")


@dataclass(frozen=True, slots=True)
class LineFormat:
    parse_key: bool = False
    parse_headers: bool = False
    ignore_error: bool = False
    key_separator: bytes = b"\t"
    headers_delimiter: bytes = b"\t"
    headers_separator: bytes = b","
    headers_key_separator: bytes = b":"
    null_marker: bytes | None = None
    """What stands for null; None if nothing does."""

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> LineFormat:
        """From kafka-console-producer's properties."""
        checked_names(properties, (*_FLAGS, *_TEXTS))
        texts = {name: properties.get(name, default) for name, default in _TEXTS.items()}
        for name, text in texts.items():
            if not text and name != "null.marker":
                raise WrongUse(f"{name} must not be empty")
        made = cls(
            parse_key=flag(properties, "parse.key", False),
            parse_headers=flag(properties, "parse.headers", False),
            ignore_error=flag(properties, "ignore.error", False),
            key_separator=texts["key.separator"].encode(),
            headers_delimiter=texts["headers.delimiter"].encode(),
            headers_separator=texts["headers.separator"].encode(),
            headers_key_separator=texts["headers.key.separator"].encode(),
            null_marker=texts["null.marker"].encode() or None,
        )
        made._check_differences()
        return made

    def _check_differences(self) -> None:
        parts = {"headers.separator": self.headers_separator}
        parts["headers.delimiter"] = self.headers_delimiter
        parts["headers.key.separator"] = self.headers_key_separator
        if self.parse_headers and len(set(parts.values())) < len(parts):
            raise WrongUse(f"{', '.join(parts)} must differ from one another")
        if self.null_marker in (self.key_separator, *parts.values()):
            raise WrongUse("null.marker must not be a separator")

    def parse(self, line: bytes, number: int) -> NewRecord:
        """The record in a line (without its end); ``number`` is for complaints."""
        rest = line
        headers: Headers = ()
        if self.parse_headers:
            text, rest = self._split(rest, self.headers_delimiter, "headers delimiter", number)
            headers = self._headers(text, number)
        key = None
        if self.parse_key:
            key, rest = self._split(rest, self.key_separator, "key separator", number)
        return NewRecord(self._or_null(rest), self._or_null(key), headers)

    def _split(
        self, line: bytes, separator: bytes, what: str, number: int
    ) -> tuple[bytes | None, bytes]:
        head, found, tail = line.partition(separator)
        if found:
            return head, tail
        if self.ignore_error:
            return None, line
        raise BadRecord(f"No {what} found on line number {number}: {_shown(line)}")

    def _headers(self, text: bytes | None, number: int) -> Headers:
        if text is None or text == self.null_marker:
            return ()
        return tuple(self._header(pair, number) for pair in text.split(self.headers_separator))

    def _header(self, pair: bytes, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.headers_key_separator)
        if not found and not self.ignore_error:
            raise BadRecord(
                f"No header key separator found in pair {_shown(pair)} on line number {number}"
            )
        if name == self.null_marker:
            raise BadRecord(f"A header's key is the null marker on line number {number}")
        return _text(name, number), self._or_null(value) if found else None

    def _or_null(self, data: bytes | None) -> bytes | None:
        return None if data is None or data == self.null_marker else data


def _text(data: bytes, number: int) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise BadRecord(f"A header's key is not UTF-8 on line number {number}") from None


def _shown(data: bytes) -> str:
    return f"'{data[:200].decode('utf-8', 'replace')}'"
