"""What a setting is: a name, a type, a default, what is allowed, and who may change it when.

Values are parsed by Kafka's rules (`ConfigDef`): surrounding blanks do not count, booleans are
`true` or `false` in any case, numbers are decimal and must fit their Java type, lists are split
at commas and lose repeated entries. The objections quote what Kafka's clients and tools show
for the same mistake, because people search for those words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
DOUBLE_MAX: Final = 1.7976931348623157e308


class InvalidValue(ValueError):
    """A value that a setting does not take; the text says what it takes."""


class InvalidSettings(ValueError):
    """Everything that is wrong with a set of settings, not only the first thing."""

    def __init__(self, errors: tuple[str, ...]) -> None:
        super().__init__("\n".join(errors))
        self.errors = errors


class Kind(Enum):
    """The types of Kafka's configuration, with the numbers DescribeConfigs has for them."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class Update(Enum):
    """When a change of a setting takes effect."""

    READ_ONLY = "R"
    """After a restart."""
    PER_BROKER = "B"
    """At once, for one broker."""
    CLUSTER_WIDE = "C"
    """At once, for one broker or for all."""


class Room(Enum):
    """The room that gives a setting its effect."""

    STORAGE = "storage"
    CONTROLLER = "controller"
    REPLICATION = "replication"
    COORDINATOR = "coordinator"
    BROKER = "broker"


class Allowed(Protocol):
    """The values a setting takes, beyond its type."""

    def objection(self, value: Value) -> str | None:
        """What is wrong with `value`, or None."""

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Range:
    """A number from `low` to `high`, both included; `extra` is allowed besides."""

    low: float
    high: float | None = None
    extra: int | None = None

    def objection(self, value: Value) -> str | None:
        if not isinstance(value, int | float) or value == self.extra:
            return None
        below, above = not value >= self.low, self.high is not None and value > self.high
        if (below or above) and self.extra is not None:
            return f"Value must be between {self.low} and {self.high} or equal to {self.extra}"
        if below:
            return f"Value must be at least {self.low}"
        return f"Value must be no more than {self.high}" if above else None

    def __str__(self) -> str:
        interval = f"[{self.low},...]" if self.high is None else f"[{self.low},...,{self.high}]"
        return interval if self.extra is None else f"{interval} or {self.extra}"


@dataclass(frozen=True, slots=True)
class OneOf:
    """One of some words, or, for a list, nothing but such words."""

    words: tuple[str, ...]
    any_case: bool = False

    def objection(self, value: Value) -> str | None:
        given = value if isinstance(value, tuple) else (str(value),)
        words = {word.lower() for word in self.words} if self.any_case else set(self.words)
        if all((word.lower() if self.any_case else word) in words for word in given):
            return None
        return "String must be one of: " + ", ".join(self.words)

    def __str__(self) -> str:
        return ("(case insensitive) " if self.any_case else "") + f"[{', '.join(self.words)}]"


_THROTTLED_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")
_THROTTLED_FORM: Final = "[partitionId]:[brokerId],[partitionId]:[brokerId],..."


@dataclass(frozen=True, slots=True)
class ThrottledReplicas:
    """`*` for all replicas, or `partition:broker` pairs."""

    def objection(self, value: Value) -> str | None:
        if not isinstance(value, tuple) or value == ("*",):
            return None
        if all(_THROTTLED_REPLICA.fullmatch(pair) for pair in value):
            return None
        return f"must be the literal '*' or a list of replicas in the form {_THROTTLED_FORM}"

    def __str__(self) -> str:
        return _THROTTLED_FORM


def parse(kind: Kind, text: str) -> Value:
    """Reads `text` as a value of `kind`; raises InvalidValue."""
    trimmed = text.strip()
    match kind:
        case Kind.BOOLEAN:
            return _parse_boolean(trimmed)
        case Kind.INT | Kind.SHORT | Kind.LONG:
            return _parse_integer(kind, trimmed)
        case Kind.DOUBLE:
            return _parse_double(trimmed)
        case Kind.LIST:
            return _parse_list(trimmed)
        case Kind.STRING | Kind.CLASS:
            return trimmed
        case Kind.PASSWORD:
            return text


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise InvalidValue("Expected value to be either true or false")
    return text.lower() == "true"


_INTEGER: Final = re.compile(r"[+-]?[0-9]+")
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?")
_BITS: Final = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}


def _parse_integer(kind: Kind, text: str) -> int:
    limit = 1 << (_BITS[kind] - 1)
    # Twenty characters hold every 64-bit number; longer ones are not worth converting.
    if _INTEGER.fullmatch(text) and len(text.lstrip("+-0")) <= 20 and -limit <= int(text) < limit:
        return int(text)
    raise InvalidValue(f"Not a number of type {kind.name}")


def _parse_double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise InvalidValue(f"Not a number of type {Kind.DOUBLE.name}")
    return float(text.rstrip("fFdD"))


def _parse_list(text: str) -> tuple[str, ...]:
    if not text:
        return ()
    entries = [entry.strip() for entry in text.split(",")]
    if "" in entries:
        raise InvalidValue("a list must not have empty entries")
    return tuple(dict.fromkeys(entries))


def to_text(value: Value) -> str | None:
    """The value as a properties file and DescribeConfigs write it; null stays None."""
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return _double_text(value)
        case tuple():
            return ",".join(value)
        case None:
            return None
        case _:
            return str(value)


def _double_text(value: float) -> str:
    """Java's Double.toString: plain from 10^-3 up to 10^7, scientific elsewhere."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, exponent = f"{value:.16e}".split("e")
    for digits in range(1, 17):
        short = f"{value:.{digits}e}"
        if float(short) == value:
            mantissa, exponent = short.split("e")
            break
    return f"{mantissa}E{int(exponent)}"


@dataclass(frozen=True, slots=True)
class Synonym:
    """Another setting that gives this one its value, in units `factor` times as large."""

    name: str
    factor: int = 1

    def convert(self, value: Value) -> Value:
        """A value of the synonym in this setting's unit; below zero means unlimited, -1."""
        if self.factor == 1 or isinstance(value, bool) or not isinstance(value, int):
            return value
        return value * self.factor if value >= 0 else -1


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of a settings table."""

    name: str
    kind: Kind
    default: Value
    room: Room
    doc: str
    update: Update = Update.READ_ONLY
    allowed: Allowed | None = None
    synonyms: tuple[Synonym, ...] = ()
    required: bool = False
    ours: bool = False
    """Tidelog's own; Kafka has no such setting."""
    hidden: bool = False
    """Taken when given, never shown."""

    def parse(self, text: str) -> Value:
        """Reads and checks a value; raises InvalidValue saying what is allowed."""
        value = parse(self.kind, text)
        objection = self.allowed.objection(value) if self.allowed is not None else None
        if objection is not None:
            raise InvalidValue(objection)
        return value

    @property
    def attribute(self) -> str:
        """The name as a Python identifier."""
        return self.name.replace(".", "_")

    @property
    def sensitive(self) -> bool:
        """Whether the value must never be shown."""
        return self.kind is Kind.PASSWORD


Table: TypeAlias = Mapping[str, Setting]


def table(*rows: Setting) -> Table:
    """The rows by name; a name given twice is a mistake in the source."""
    by_name = {row.name: row for row in rows}
    assert len(by_name) == len(rows), "a setting is listed twice"
    return MappingProxyType(by_name)
