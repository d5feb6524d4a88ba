"""From what people give to settings: a properties file, the environment, `-o` overrides.

An override beats the environment, the environment the file, the file the default; a `TIDELOG_`
variable beats the `KAFKA_` one. In a variable's name, after the prefix, `_` stands for a dot,
`__` for an underscore and `___` for a dash, and case does not count.

A name is *implemented* (it is in the table), *known* to Kafka without effect here (accepted; one
warning lists them), *refused* because its value promises what is lacking, or unknown. Unknown
names are errors, except in the environment, which is full of other people's variables: there
only a name that looks like a slip of the pen is one.

Everything wrong is reported at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.checks import conflicts
from tidelog.kernel.settings.kafka_names import KAFKA_BROKER_NAMES, KAFKA_OTHER_BROKER_NAMES
from tidelog.kernel.settings.nearest import nearest
from tidelog.kernel.settings.properties import MalformedProperties, read_properties
from tidelog.kernel.settings.refusals import may_be_refused, refusal
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import InvalidSettings, InvalidValue, Setting
from tidelog.kernel.settings.values import Given, Origin, Settings

KNOWN_NAMES: Final = frozenset(BROKER_SETTINGS) | KAFKA_BROKER_NAMES | KAFKA_OTHER_BROKER_NAMES
_KNOWN_PREFIXES: Final = ("rsm.config.", "rlmm.config.")
_ENVIRONMENT_PREFIXES: Final = ("KAFKA_", "TIDELOG_")  # the later wins
_SLIP_OF_THE_PEN: Final = 2
_SECRET: Final = re.compile(r"password|passphrase|secret|jaas|\.key$|certificate")


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings that are right, and what the operator should know about them."""

    settings: Settings
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    text: str
    origin: Origin
    where: str

    def __str__(self) -> str:
        return f"{self.where}: {self.name}={'***' if _SECRET.search(self.name) else self.text}"


def load(
    *,
    file_text: str = "",
    file_name: str = "server.properties",
    environment: Mapping[str, str] | None = None,
    overrides: Iterable[str] = (),
) -> Loaded:
    """The settings of a node; raises InvalidSettings with everything that is wrong."""
    errors: list[str] = []
    entries = [
        *_from_file(file_text, file_name, errors),
        *_from_environment(environment or {}),
        *_from_overrides(overrides, errors),
    ]
    given, without_effect, wrong = _sort_out(entries, errors)
    settings = Settings(given)
    # What was wrong by itself is not worth a second complaint.
    errors += [c for c in conflicts(settings) if not any(_mentions(c, name) for name in wrong)]
    if errors:
        raise InvalidSettings(tuple(errors))
    return Loaded(settings, _warnings(without_effect))


def environment_setting(variable: str) -> str | None:
    """The setting an environment variable would give, or None if it has no prefix of ours."""
    for prefix in _ENVIRONMENT_PREFIXES:
        if variable.startswith(prefix) and len(variable) > len(prefix):
            return re.sub("_{1,3}", _mark, variable.removeprefix(prefix)).lower()
    return None


def _mark(underscores: re.Match[str]) -> str:
    return "._-"[len(underscores.group()) - 1]


def _from_file(text: str, file_name: str, errors: list[str]) -> list[_Entry]:
    try:
        properties = read_properties(text)
    except MalformedProperties as malformed:
        errors.append(f"{file_name} {malformed}")
        return []
    last = {one.key: one for one in properties}
    return [
        _Entry(one.key, one.value, Origin.FILE, f"{file_name} line {one.line}")
        for one in last.values()
    ]


def _from_environment(environment: Mapping[str, str]) -> list[_Entry]:
    found: dict[str, _Entry] = {}
    for prefix in _ENVIRONMENT_PREFIXES:
        for variable in sorted(environment):
            name = environment_setting(variable) if variable.startswith(prefix) else None
            if name is not None:
                where = f"environment variable {variable}"
                found[name] = _Entry(name, environment[variable], Origin.ENVIRONMENT, where)
    return list(found.values())


def _from_overrides(overrides: Iterable[str], errors: list[str]) -> list[_Entry]:
    found: dict[str, _Entry] = {}
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            errors.append(f"-o {override}: must be name=value")
            continue
        found[name.strip()] = _Entry(name.strip(), text, Origin.OVERRIDE, "-o")
    return list(found.values())


def _sort_out(entries: list[_Entry], errors: list[str]) -> tuple[list[Given], set[str], set[str]]:
    """Values for the table, names without effect, and names with something wrong."""
    given: list[Given] = []
    without_effect: set[str] = set()
    wrong: set[str] = set()
    strongest = {entry.name: entry for entry in entries}  # entries come weakest first
    for entry in entries:
        row = BROKER_SETTINGS.get(entry.name)
        objection = _objection(entry, row, strongest[entry.name] is entry)
        if objection is not None:
            errors.append(f"{entry}: {objection}")
            wrong.add(entry.name)
        elif row is not None:
            given.append(Given(entry.name, row.parse(entry.text), entry.origin, entry.where))
        elif _is_known(entry.name):
            without_effect.add(entry.name)
    return given, without_effect, wrong


def _objection(entry: _Entry, row: Setting | None, counts: bool) -> str | None:
    """What is wrong with an entry; promises matter only where no stronger source takes over."""
    refused = refusal(entry.name, entry.text) if counts else None
    if refused is not None:
        return f"refused, because {refused}"
    if row is None:
        return None if _is_known(entry.name) else _unknown(entry)
    try:
        row.parse(entry.text)
    except InvalidValue as invalid:
        allowed = f", {row.allowed}" if row.allowed is not None else ""
        return f"{invalid} (allowed: {row.kind.name}{allowed})"
    return None


def _is_known(name: str) -> bool:
    if name.startswith("listener.name."):
        rest = name.removeprefix("listener.name.").partition(".")[2]
        return rest in KNOWN_NAMES or may_be_refused(name)
    return name in KNOWN_NAMES or name.startswith(_KNOWN_PREFIXES) or may_be_refused(name)


def _unknown(entry: _Entry) -> str | None:
    name = entry.name
    if entry.origin is Origin.ENVIRONMENT:
        meant = nearest(name, KNOWN_NAMES, _SLIP_OF_THE_PEN)
        return f"unknown setting; did you mean {meant}?" if meant is not None else None
    if name in TOPIC_SETTINGS:
        synonyms = TOPIC_SETTINGS[name].synonyms
        hint = f"; the broker's default for it is {synonyms[0].name}" if synonyms else ""
        return f"a setting of topics, not of the broker{hint}"
    meant = nearest(name, KNOWN_NAMES, max(3, len(name) // 4))
    return "unknown setting" + (f"; did you mean {meant}?" if meant is not None else "")


def _mentions(conflict: str, name: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.]*\w)", conflict) is not None


def _warnings(without_effect: set[str]) -> tuple[str, ...]:
    if not without_effect:
        return ()
    names = ", ".join(sorted(without_effect))
    return (f"These settings of Kafka have no effect here: {names}",)
