"""Java's `.properties` format, read and written as `java.util.Properties` does.

A logical line may be continued by a backslash at the end of a line; blanks at the beginning of
the continuation do not count. Key and value part at the first `=`, `:` or blank that no
backslash protects. `\\uXXXX` is one UTF-16 unit. A key given twice counts once: the last wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

_BLANKS: Final = " \t\f"
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
_KEY: Final = re.compile(r"(?:\\.|[^\\=: \t\f])*", re.DOTALL)
_TRAILING_BACKSLASHES: Final = re.compile(r"\\*$")


class MalformedProperties(ValueError):
    """A text that is not in the properties format; the message names the line."""


@dataclass(frozen=True, slots=True)
class Property:
    """One key with its value and the number of the line it begins on, from 1."""

    key: str
    value: str
    line: int


def read_properties(text: str) -> list[Property]:
    """Every property in order, repeated keys included; raises MalformedProperties."""
    return [_parse_line(number, line) for number, line in _logical_lines(text)]


def parse_properties(text: str) -> dict[str, str]:
    """The properties by key; raises MalformedProperties."""
    return {one.key: one.value for one in read_properties(text)}


def format_properties(properties: Mapping[str, str], comments: tuple[str, ...] = ()) -> str:
    """The text of a properties file: comment lines first, then the keys in the order given."""
    lines = [f"#{comment}" for comment in comments]
    for key, value in properties.items():
        leading = len(value) - len(value.lstrip(" "))
        escaped = "\\ " * leading + _escape(value[leading:])
        lines.append(f"{_escape(key).replace(' ', chr(92) + ' ')}={escaped}")
    return "".join(f"{line}\n" for line in lines)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    natural = re.split(r"\r\n|\r|\n", text)
    index = 0
    while index < len(natural):
        number, line = index + 1, natural[index].lstrip(_BLANKS)
        index += 1
        if not line or line[0] in "#!":
            continue
        while _is_continued(line):
            line = line[:-1]
            if index < len(natural):
                line += natural[index].lstrip(_BLANKS)
                index += 1
        if line:
            yield number, line


def _is_continued(line: str) -> bool:
    """Whether an odd number of backslashes ends the line: an even one is escaped ones."""
    trailing = _TRAILING_BACKSLASHES.search(line)
    return trailing is not None and len(trailing.group()) % 2 == 1


def _parse_line(number: int, line: str) -> Property:
    match = _KEY.match(line)
    key = match.group() if match is not None else ""
    rest = line[len(key) :].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return Property(_unescape(key, number), _unescape(rest, number), number)


def _unescape(text: str, line: int) -> str:
    def character(match: re.Match[str]) -> str:
        escape = match.group(1)
        if escape == "u":
            raise MalformedProperties(f"line {line}: \\u needs four hexadecimal digits")
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _ESCAPES.get(escape, escape)

    if "\\" not in text:
        return text
    units = _ESCAPE.sub(character, text)
    # Two \uXXXX may be the halves of one character; UTF-16 joins them.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")


def _escape(text: str) -> str:
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    match character:
        case "\t":
            return "\\t"
        case "\n":
            return "\\n"
        case "\r":
            return "\\r"
        case "\f":
            return "\\f"
        case "\\" | "#" | "!" | "=" | ":":
            return "\\" + character
        case _ if " " <= character <= "~":
            return character
        case _:
            units = character.encode("utf-16-be", "surrogatepass").hex().upper()
            return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))
