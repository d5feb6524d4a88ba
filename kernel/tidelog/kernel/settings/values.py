"""The values a broker runs with, and where each of them came from.

Settings are immutable: a dynamic change makes new ones. For one name the strongest source wins
(dynamic for this broker, dynamic for the cluster, `-o`, environment, file, default). Between
synonyms the *order of the synonyms* wins, as in Kafka: a `log.retention.ms` in the file beats a
`log.retention.hours` in the environment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.types import (
    InvalidSettings,
    InvalidValue,
    Setting,
    Synonym,
    Update,
    Value,
    to_text,
)

_T = TypeVar("_T")


class Origin(Enum):
    """Where a value came from, weakest first."""

    DEFAULT = "default"
    FILE = "file"
    ENVIRONMENT = "environment"
    OVERRIDE = "override"
    DYNAMIC_DEFAULT = "dynamic default"
    DYNAMIC_BROKER = "dynamic broker"
    LOGGER = "broker logger"
    GROUP = "group"
    TOPIC = "topic"

    @property
    def config_source(self) -> int:
        """The number DescribeConfigs has for it."""
        return _CONFIG_SOURCES[self]


_CONFIG_SOURCES: Final = {
    Origin.TOPIC: 1,
    Origin.DYNAMIC_BROKER: 2,
    Origin.DYNAMIC_DEFAULT: 3,
    Origin.OVERRIDE: 4,
    Origin.ENVIRONMENT: 4,
    Origin.FILE: 4,
    Origin.DEFAULT: 5,
    Origin.LOGGER: 6,
    Origin.GROUP: 8,
}
_STRENGTH: Final = {origin: strength for strength, origin in enumerate(Origin)}


@dataclass(frozen=True, slots=True)
class Given:
    """A value somebody gave to a setting."""

    name: str
    value: Value
    origin: Origin
    where: str = ""
    """For messages: `server.properties line 12`, `environment variable KAFKA_NODE_ID`."""


@dataclass(frozen=True, slots=True)
class Link:
    """One step of the chain that decides a value, as DescribeConfigs lists synonyms."""

    name: str
    text: str | None
    """None for what must not be shown, and for null."""
    origin: Origin


class MissingSetting(LookupError):
    """A setting without a default was read but never given."""


class Settings:
    """Every broker setting with its value; read by name, never changed."""

    __slots__ = ("_given", "_resolved")

    def __init__(self, given: Iterable[Given] = ()) -> None:
        by_name: dict[str, tuple[Given, ...]] = {}
        for one in sorted(given, key=lambda one: -_STRENGTH[one.origin]):
            by_name[one.name] = (*by_name.get(one.name, ()), one)
        self._given = by_name
        self._resolved = {name: self._resolve(row) for name, row in BROKER_SETTINGS.items()}

    @classmethod
    def of(cls, values: Mapping[str, str]) -> Settings:
        """Settings given by hand (as overrides), without the checks between settings."""
        return cls(_parse_all(values, Origin.OVERRIDE))

    def with_dynamic(
        self, *, cluster: Mapping[str, str], broker: Mapping[str, str] | None = None
    ) -> Settings:
        """These settings under the dynamic ones of the cluster and of this broker.

        Names outside the table have no effect here and are passed over, so that metadata
        written by a newer node does not stop this one. Raises InvalidSettings.
        """
        dynamic = (Origin.DYNAMIC_DEFAULT, Origin.DYNAMIC_BROKER)
        kept = [g for stack in self._given.values() for g in stack if g.origin not in dynamic]
        kept += _parse_all(_changeable(cluster, cluster_wide=True), Origin.DYNAMIC_DEFAULT)
        kept += _parse_all(_changeable(broker or {}, cluster_wide=False), Origin.DYNAMIC_BROKER)
        return Settings(kept)

    def get(self, name: str) -> Value:
        """The value, through synonyms; raises KeyError for a name outside the table."""
        return self._resolved[name]

    def get_bool(self, name: str) -> bool:
        return self._typed(name, bool)

    def get_int(self, name: str) -> int:
        return self._typed(name, int)

    get_long = get_int

    def get_double(self, name: str) -> float:
        return self._typed(name, float)

    def get_str(self, name: str) -> str:
        return self._typed(name, str)

    def get_optional_str(self, name: str) -> str | None:
        """A text that may be null; an empty one counts as null."""
        value = self.get(name)
        return self._typed(name, str) or None if value is not None else None

    def get_list(self, name: str) -> tuple[str, ...]:
        return self._typed(name, tuple)

    def origin(self, name: str) -> Origin:
        """Where the value of exactly this name came from (synonyms not followed)."""
        stack = self._given.get(name, ())
        return stack[0].origin if stack else Origin.DEFAULT

    def where(self, name: str) -> str:
        """The same in words for messages."""
        stack = self._given.get(name, ())
        return stack[0].where or stack[0].origin.value if stack else "default"

    def is_given(self, name: str) -> bool:
        return name in self._given

    def own(self, name: str) -> Value:
        """The value of exactly this name, which may be null where a synonym has one."""
        stack = self._given.get(name, ())
        return stack[0].value if stack else BROKER_SETTINGS[name].default

    def chain(self, name: str) -> tuple[Link, ...]:
        """What decides a broker setting: every value given, its synonyms', the defaults."""
        return self.links((Synonym(name), *BROKER_SETTINGS[name].synonyms))

    def links(self, synonyms: Iterable[Synonym]) -> tuple[Link, ...]:
        """The same for a list of names; all that is given comes before all defaults."""
        rows = [BROKER_SETTINGS[synonym.name] for synonym in synonyms]
        given = [(row, g) for row in rows for g in self._given.get(row.name, ())]
        defaults = [row for row in rows if row.default is not None]
        return (
            *(Link(row.name, shown(row, g.value), g.origin) for row, g in given),
            *(Link(row.name, shown(row, row.default), Origin.DEFAULT) for row in defaults),
        )

    def first_given(self, synonyms: Iterable[Synonym]) -> tuple[Value, Origin] | None:
        """The value of the first of these names that was given, in the asker's unit."""
        for synonym in synonyms:
            stack = self._given.get(synonym.name, ())
            if stack:
                return synonym.convert(stack[0].value), stack[0].origin
        return None

    def _resolve(self, row: Setting) -> Value:
        names = (Synonym(row.name), *row.synonyms)
        found = self.first_given(names)
        if found is not None:
            return found[0]
        if row.required:  # the default of a synonym (broker.id's -1) is no answer
            return None
        for synonym in names:
            default = BROKER_SETTINGS[synonym.name].default
            if default is not None:
                return synonym.convert(default)
        return None

    def _typed(self, name: str, kind: type[_T]) -> _T:
        value = self.get(name)
        if value is None:
            raise MissingSetting(f"{name} is not set and has no default")
        if not isinstance(value, kind):
            raise TypeError(f"{name} is not a {kind.__name__} but {value!r}")
        return value


def shown(row: Setting, value: Value) -> str | None:
    """The value as text, unless it must not be shown."""
    return None if row.sensitive else to_text(value)


def _changeable(values: Mapping[str, str], *, cluster_wide: bool) -> dict[str, str]:
    fixed = [name for name in values if name in BROKER_SETTINGS and _is_fixed(name, cluster_wide)]
    if fixed:
        raise InvalidSettings(
            tuple(f"{name} cannot be changed while the broker runs" for name in sorted(fixed))
        )
    return {name: text for name, text in values.items() if name in BROKER_SETTINGS}


def _is_fixed(name: str, cluster_wide: bool) -> bool:
    update = BROKER_SETTINGS[name].update
    return update is Update.READ_ONLY or (cluster_wide and update is Update.PER_BROKER)


def _parse_all(values: Mapping[str, str], origin: Origin) -> list[Given]:
    given: list[Given] = []
    errors: list[str] = []
    for name, text in values.items():
        try:
            given.append(Given(name, BROKER_SETTINGS[name].parse(text), origin))
        except KeyError:
            errors.append(f"Unknown setting {name}")
        except InvalidValue as refused:
            errors.append(f"Invalid value {text} for configuration {name}: {refused}")
    if errors:
        raise InvalidSettings(tuple(errors))
    return given
