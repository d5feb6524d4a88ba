"""What an option is, and how a table of them is applied to what a job gave.

Spark hands over option names in lower case, so names are compared that way and told in the
spelling of the table.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tidelog.pipeline.errors import WrongOptions


@dataclass(frozen=True, slots=True)
class Option:
    name: str
    kind: str
    """For people: ``integer ≥ 1``, ``true or false``, …"""
    parse: Callable[[str], Any]
    """Raises ``ValueError`` if the text is not of that kind."""
    default: Any
    meaning: str
    modes: frozenset[str]
    """``batch``, ``stream``, or both."""


def parse_options(
    table: Sequence[Option], given: Mapping[str, str], mode: str, refused: Mapping[str, str]
) -> dict[str, Any]:
    """The value of every option by its name; every problem is told at once.

    ``refused`` maps a name, or a beginning that ends with ``*``, to the reason.
    """
    known = {option.name.lower(): option for option in table}
    values: dict[str, Any] = {option.name: option.default for option in table}
    problems: list[str] = []
    for name, text in sorted(given.items()):
        option = known.get(name.lower())
        if option is None:
            problems.append(_why_unknown(name, known, refused))
        elif mode not in option.modes:
            (only,) = option.modes
            problems.append(f"{option.name} is for {only} queries, and this is a {mode} query")
        else:
            try:
                values[option.name] = option.parse(str(text))
            except ValueError as error:
                reason = f" ({error})" if str(error) else ""
                problems.append(f"{option.name} is {text!r}, and must be: {option.kind}{reason}")
    if problems:
        raise WrongOptions("; ".join(problems))
    return values


def _why_unknown(name: str, known: Mapping[str, Option], refused: Mapping[str, str]) -> str:
    for pattern, reason in refused.items():
        if _matches(pattern.lower(), name.lower()):
            return f"{name} is refused: {reason}"
    close = difflib.get_close_matches(name.lower(), known, 1)
    hint = f" (did you mean {known[close[0]].name}?)" if close else ""
    return f"{name} is not an option of this source{hint}"


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern


def flag(text: str) -> bool:
    match text.strip().lower():
        case "true":
            return True
        case "false":
            return False
        case _:
            raise ValueError


def whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = int(text.strip())
        if number < least:
            raise ValueError
        return number

    return parse


def one_of(*allowed: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        found = text.strip().lower()
        if found not in allowed:
            raise ValueError
        return found

    return parse


def names(text: str) -> tuple[str, ...]:
    """``a,b``, each once."""
    found = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ValueError
    return found


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(error) from None
    return text


_UNITS_MS: Final = {
    "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip


def duration_ms(text: str) -> int:
    """``15m``, ``500ms``; a number alone is milliseconds."""
    found = re.fullmatch(r"\s*(\d+)\s*(ms|s|m|min|h|d)?\s*", text)
    if found is None:
        raise ValueError
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def markdown(table: Sequence[Option]) -> str:
    """The rows of the table in the documentation."""
    lines = ["| option | for | value | default | meaning |", "|---|---|---|---|---|"]
    for option in table:
        modes = "both" if len(option.modes) > 1 else next(iter(option.modes))
        default = "–" if option.default is None else f"`{str(option.default).lower()}`"
        lines.append(
            f"| `{option.name}` | {modes} | {option.kind} | {default} | {option.meaning} |"
        )
    return "\n".join(lines)
