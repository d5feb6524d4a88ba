"""Settings of topics, brokers, the cluster and groups: shown and changed, as kafka-configs does."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from tidelog.cli.ask import Connection
from tidelog.cli.brokers import Brokers, fail_on, patiently
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.questions import question
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.settings.nearest import nearest
from tidelog.wire.protocol.apis import ApiKey

SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_SET, _DELETE = 0, 1
_OF_ONE_LISTENER: Final = "listener.name."


class Kind(Enum):
    """What has settings: the number of the protocol, and the source of what was given to it."""

    TOPIC = (2, 1, "topic")
    BROKER = (4, 2, "broker")
    CLUSTER = (4, 3, "broker")
    GROUP = (32, 8, "group")

    @property
    def resource_type(self) -> int:
        return self.value[0]

    @property
    def own_source(self) -> int:
        return self.value[1]


@dataclass(frozen=True, slots=True)
class Entity:
    kind: Kind
    name: str

    def __str__(self) -> str:
        if self.kind is Kind.CLUSTER:
            return "the default broker entity"
        return f"{self.kind.value[2]} {self.name}"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    value: str | None
    source: int
    is_read_only: bool
    is_sensitive: bool
    synonyms: tuple[tuple[int, str, str | None], ...]

    def line(self) -> str:
        synonyms = ", ".join(
            f"{SOURCES.get(source, source)}:{name}={value}" for source, name, value in self.synonyms
        )
        sensitive = str(self.is_sensitive).lower()
        return f"  {self.name}={self.value} sensitive={sensitive} synonyms={{{synonyms}}}"


def connection_for(brokers: Brokers, entity: Entity) -> Connection:
    """Only a broker itself knows all that it runs with."""
    return brokers.to(int(entity.name)) if entity.kind is Kind.BROKER else brokers.any


def describe_entity(
    brokers: Brokers, entity: Entity, names: Sequence[str] | None = None
) -> list[ConfigEntry]:
    resource = {
        "resource_type": entity.kind.resource_type,
        "resource_name": entity.name,
        "configuration_keys": names,
    }
    request = question(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=[resource],
        include_synonyms=True,
        include_documentation=False,
    )
    result = connection_for(brokers, entity).ask(request).results[0]
    if int(result.error_code) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise CommandFailed(f"{entity} does not exist; tidelog topic list")
    fail_on(result, str(entity))
    return sorted((_entry(one) for one in result.configs), key=lambda one: one.name)


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(
        str(config.name),
        config.value,
        int(config.config_source),
        bool(config.read_only),
        bool(config.is_sensitive),
        tuple((int(one.source), str(one.name), one.value) for one in config.synonyms),
    )


def print_configs(
    bootstrap: str, entities: Sequence[Entity], *, show_all: bool, as_json: bool
) -> None:
    shown = []
    with Brokers(bootstrap) as brokers:
        for entity in entities:
            entries = describe_entity(brokers, entity)
            if not show_all:
                entries = [one for one in entries if one.source == entity.kind.own_source]
            if as_json:
                shown.append(_as_object(entity, entries))
                continue
            what = "All configs" if show_all else "Dynamic configs"
            print(f"{what} for {entity} are:")
            for one in entries:
                print(one.line())
    if as_json:
        print(json.dumps(shown))


def _as_object(entity: Entity, entries: Sequence[ConfigEntry]) -> dict[str, Any]:
    configs = [
        {
            "name": one.name,
            "value": one.value,
            "source": SOURCES.get(one.source, str(one.source)),
            "read_only": one.is_read_only,
            "sensitive": one.is_sensitive,
        }
        for one in entries
    ]
    return {"type": entity.kind.name.lower(), "name": entity.name, "configs": configs}


def alter_entity(
    brokers: Brokers, entity: Entity, values: Mapping[str, str], deleted: Sequence[str]
) -> None:
    changes = [
        {"name": name, "config_operation": _SET, "value": value} for name, value in values.items()
    ] + [{"name": name, "config_operation": _DELETE, "value": None} for name in deleted]
    resource = {
        "resource_type": entity.kind.resource_type,
        "resource_name": entity.name,
        "configs": changes,
    }
    request = question(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    )
    connection = connection_for(brokers, entity)
    fail_on(patiently(lambda: connection.ask(request).responses[0]), str(entity))


def alter_configs(
    bootstrap: str,
    entities: Sequence[Entity],
    values: Mapping[str, str],
    deleted: Sequence[str],
    *,
    as_json: bool,
) -> None:
    if both := values.keys() & set(deleted):
        raise WrongUse(f"{min(both)} is both set and deleted")
    done, failures = [], []
    with Brokers(bootstrap) as brokers:
        for entity in entities:
            try:
                _refuse_unknown(brokers, entity, values)
                alter_entity(brokers, entity, values, deleted)
            except CommandFailed as failure:
                failures.append(str(failure))
            else:
                done.append({"type": entity.kind.name.lower(), "name": entity.name})
                if not as_json:
                    print(f"Completed updating config for {entity}.")
    if as_json:
        print(json.dumps({"altered": done}))
    if failures:
        raise CommandFailed("\n".join(failures))


def _refuse_unknown(brokers: Brokers, entity: Entity, names: Collection[str]) -> None:
    """Brokers take any name, in case a plug-in knows it; a slip of the pen would go unnoticed."""
    if entity.kind not in (Kind.BROKER, Kind.CLUSTER) or not names:
        return
    node = entity.name or str(min(brokers.describe().live))
    known = {one.name for one in describe_entity(brokers, Entity(Kind.BROKER, node))}
    for name in names:
        if name not in known and not name.startswith(_OF_ONE_LISTENER):
            meant = nearest(name, known, max(3, len(name) // 4))
            hint = f"did you mean {meant}?" if meant else "tidelog config describe --all lists all"
            raise CommandFailed(f"{entity}: unknown setting {name}; {hint}")


def parse_added(text: str) -> dict[str, str]:
    """``a=1,b=[x,y],c=``: brackets keep commas together, as in kafka-configs."""
    values = {}
    for part in _split(text):
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise WrongUse(f"--add-config {text}: name=value, joined by commas; [a,b] for lists")
        value = value.strip()
        is_list = value.startswith("[") and value.endswith("]")
        values[name.strip()] = value[1:-1] if is_list else value
    return values


def _split(text: str) -> Iterator[str]:
    depth, start = 0, 0
    for index, character in enumerate(text):
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            yield text[start:index]
            start = index + 1
    yield text[start:]
