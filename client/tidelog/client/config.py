"""From what a programmer writes to what librdkafka is given: checked, named, with Kafka's defaults.

Pure: no client is made here. A name that does not exist is refused with those that look like it;
rules between settings are Kafka's own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tidelog.client.errors import ConfigError
from tidelog.client.settings import INSTEAD, OF_JAVA, ONLY_HERE, TABLES, Kind, Role, Setting, Value

_IN_FLIGHT_OF_IDEMPOTENCE: Final = 5
_NO_GROUP: Final = "tidelog-client-without-a-group"
"""librdkafka insists on a name; a consumer without one joins no group and commits nothing."""
_SERVER: Final = re.compile(
    r"((PLAINTEXT|SSL|SASL_PLAINTEXT|SASL_SSL)://)?(\[[0-9A-Fa-f:.%\w]+\]|[\w.%-]+):(?P<port>\d{1,5})"
)
_INTERNAL_TOPICS: Final = "^__consumer_offsets$,^__transaction_state$,^__share_group_state$"


@dataclass(frozen=True, slots=True)
class ClientConfig:
    """Settings of one client: each that its table has, and what librdkafka is to be given."""

    role: Role
    given: frozenset[str]
    values: Mapping[str, Any]
    librdkafka: Mapping[str, Any]

    def text(self, name: str) -> str | None:
        value = self.values[name]
        return None if value is None else str(value)

    def number(self, name: str) -> int:
        return int(self.values[name])

    def flag(self, name: str) -> bool:
        return bool(self.values[name])

    def seconds(self, name: str) -> float:
        """Of a setting in milliseconds."""
        return self.number(name) / 1000

    @property
    def servers(self) -> str:
        return ",".join(self.values["bootstrap.servers"])


def read_config(role: Role, config: Mapping[str, Value]) -> ClientConfig:
    """Check what was given; ``ConfigError`` names what is wrong and what is allowed."""
    table = TABLES[role]
    if not isinstance(config, Mapping):
        raise ConfigError(
            f'the settings are a dictionary, as {{"bootstrap.servers": "host:9092"}}, '
            f"not {config!r}",
            "bootstrap.servers",
        )
    for name in config:
        if not isinstance(name, str) or (name not in table and name not in ONLY_HERE):
            raise _unknown(role, name)
    values: dict[str, Any] = {
        name: _read(row, config[name]) if name in config else row.default
        for name, row in table.items()
    }
    if not values["bootstrap.servers"]:
        raise ConfigError(
            'bootstrap.servers is missing: say where the cluster is, as "host:9092,other:9092"',
            "bootstrap.servers",
        )
    for server in values["bootstrap.servers"]:
        _check_server(server)
    given = frozenset(config)
    if role is Role.PRODUCER:
        values = _check_producer(values, given)
    elif role is Role.CONSUMER:
        _check_consumer(values, given)
    translated = {
        target: _translate(row, values[name])
        for name, row in table.items()
        if row.passed_as and not (row.only_if_given and name not in given)
        for target in row.passed_as
        if values[name] is not None
    }
    translated.update({name: config[name] for name in config if name in ONLY_HERE})
    translated.update(_special(role, values, given))
    return ClientConfig(role, given, values, translated)


def _unknown(role: Role, name: object) -> ConfigError:
    text = str(name)
    if text in INSTEAD:
        return ConfigError(f"{text} is not a setting here: {INSTEAD[text]}", text)
    renamed = [row.name for row in TABLES[role].values() if text in row.passed_as]
    if renamed:
        problem = f"{text} is librdkafka's name; here it is Kafka's, {renamed[0]}"
        return ConfigError(problem, text, renamed)
    if text in OF_JAVA:
        problem = f"{text} is for Java's clients; librdkafka has nothing for it"
        return ConfigError(problem, text)
    others = [other.value for other in Role if text in TABLES[other]]
    nearest = _like(text, [*TABLES[role], *ONLY_HERE])
    elsewhere = [
        f"{like}, a setting of a {other.value}"
        for other in Role
        for like in _like(text, list(TABLES[other]), count=1)
    ]
    if others:
        hint = f"it is a setting of a {' or '.join(others)}"
    elif nearest:
        hint = f"did you mean {' or '.join(nearest)}?"
    elif elsewhere:
        hint = f"did you mean {' or '.join(elsewhere)}?"
    else:
        hint = "docs/CLIENT.md lists those there are"
    return ConfigError(f"a {role.value} has no setting {text!r}; {hint}", text, nearest)


def _like(text: str, known: list[str], count: int = 3) -> list[str]:
    return difflib.get_close_matches(text.replace("_", ".").lower(), known, count, 0.6)


# --- one value ---------------------------------------------------------------------------


def _read(row: Setting, value: Any) -> Any:
    match row.kind:
        case Kind.BOOL:
            found: Any = _read_bool(row, value)
        case Kind.INT:
            found = _read_int(row, value)
        case Kind.LIST:
            found = _read_list(row, value)
        case Kind.TEXT:
            found = _read_text(row, value)
    if row.fixed and found != row.default:
        raise ConfigError(
            f"{row.name}={value}: librdkafka, which this client stands on, has only "
            f"{row.default!r}",
            row.name,
        )
    return found


def _wrong(row: Setting, value: object, allowed: str) -> ConfigError:
    return ConfigError(f"{row.name}={value!r} is wrong: {allowed}", row.name)


def _read_bool(row: Setting, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise _wrong(row, value, "true or false is wanted")


def _read_int(row: Setting, value: Any) -> int:
    allowed = f"a whole number from {row.low} to {row.high} is wanted"
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise _wrong(row, value, allowed)
    try:
        number = int(value)
    except ValueError:
        raise _wrong(row, value, allowed) from None
    if not row.low <= number <= row.high:
        raise _wrong(row, value, allowed)
    return number


def _read_text(row: Setting, value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # acks=1
    if not isinstance(value, str):
        raise _wrong(row, value, "text is wanted")
    return _choose(row, value)


def _choose(row: Setting, value: str) -> str:
    if row.choices is None:
        return value
    for choice in row.choices:
        if value == choice or value.lower() == choice.lower():
            return choice
    short = [choice for choice in row.choices if "." not in choice]
    raise _wrong(row, value, f"one of {', '.join(short)} is wanted")


def _read_list(row: Setting, value: Any) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, list | tuple) or not all(isinstance(part, str) for part in parts):
        raise _wrong(row, value, "text with commas, or a list of texts, is wanted")
    return tuple(_choose(row, part.strip()) for part in parts if part.strip())


def _translate(row: Setting, value: Any) -> Any:
    if row.kind is Kind.LIST:
        parts = (value,) if isinstance(value, str) else value
        return ",".join(row.choices[part] if row.choices else part for part in parts)
    if row.choices is not None:
        return row.choices[value]
    if row.name in ("send.buffer.bytes", "receive.buffer.bytes"):
        return max(0, value)
    return value


def _check_server(server: str) -> None:
    """As Kafka does: a port belongs to it, and a protocol may stand before it."""
    if not (found := _SERVER.fullmatch(server)) or not 0 < int(found["port"]) < 1 << 16:
        raise ConfigError(
            f'bootstrap.servers: {server!r} is no host with a port, such as "localhost:9092" '
            "(several have commas between them)",
            "bootstrap.servers",
        )


# --- rules between settings --------------------------------------------------------------


def _check_producer(values: dict[str, Any], given: frozenset[str]) -> dict[str, Any]:
    values = {**values, "acks": "all" if values["acks"] == "-1" else values["acks"]}
    conflict = _conflict_with_idempotence(values)
    if conflict is not None and values["enable.idempotence"]:
        if "enable.idempotence" in given or values["transactional.id"] is not None:
            setting, why = conflict
            reason = "transactional.id" if values["transactional.id"] else "enable.idempotence"
            raise ConfigError(f"{reason} needs {why}", setting)
        values["enable.idempotence"] = False
    if values["transactional.id"] is not None and not values["enable.idempotence"]:
        raise ConfigError("transactional.id needs enable.idempotence=true", "enable.idempotence")
    least = values["linger.ms"] + values["request.timeout.ms"]
    if values["delivery.timeout.ms"] < least:
        if "delivery.timeout.ms" in given:
            raise ConfigError(
                f"delivery.timeout.ms={values['delivery.timeout.ms']} is less than linger.ms + "
                f"request.timeout.ms = {least}: a record would time out before its first request",
                "delivery.timeout.ms",
            )
        values["delivery.timeout.ms"] = least
    if values["partitioner.ignore.keys"]:
        values["partitioner"] = "random"
    return values


def _conflict_with_idempotence(values: Mapping[str, Any]) -> tuple[str, str] | None:
    if values["acks"] != "all":
        return "acks", f"acks=all, and acks={values['acks']} was given"
    if values["retries"] == 0:
        return "retries", "retries above 0, and retries=0 was given"
    in_flight = "max.in.flight.requests.per.connection"
    if values[in_flight] > _IN_FLIGHT_OF_IDEMPOTENCE:
        return in_flight, f"{in_flight} of at most 5, and {values[in_flight]} was given"
    return None


def _check_consumer(values: Mapping[str, Any], given: frozenset[str]) -> None:
    strategies = values["partition.assignment.strategy"]
    if "partition.assignment.strategy" in given:
        if not strategies:
            raise ConfigError(
                "partition.assignment.strategy: range, roundrobin or cooperative-sticky is wanted",
                "partition.assignment.strategy",
            )
        kinds = {"cooperative" in name.lower() for name in strategies}
        if len(kinds) != 1:
            raise ConfigError(
                "partition.assignment.strategy: librdkafka does not mix eager (range, roundrobin) "
                "and cooperative (cooperative-sticky) strategies; give one kind",
                "partition.assignment.strategy",
            )
    if values["group.protocol"] == "consumer":
        for name in (
            "session.timeout.ms",
            "heartbeat.interval.ms",
            "partition.assignment.strategy",
        ):
            if name in given:
                raise ConfigError(
                    f"{name} cannot be set with group.protocol=consumer: the broker decides it",
                    name,
                )
        return
    if values["heartbeat.interval.ms"] >= values["session.timeout.ms"]:
        raise ConfigError(
            f"heartbeat.interval.ms={values['heartbeat.interval.ms']} must be less than "
            f"session.timeout.ms={values['session.timeout.ms']}",
            "heartbeat.interval.ms",
        )
    if values["max.poll.interval.ms"] < values["session.timeout.ms"]:
        raise ConfigError(
            f"max.poll.interval.ms={values['max.poll.interval.ms']} must not be less than "
            f"session.timeout.ms={values['session.timeout.ms']}",
            "max.poll.interval.ms",
        )


def _special(role: Role, values: Mapping[str, Any], given: frozenset[str]) -> dict[str, Any]:
    """What has no one-to-one counterpart."""
    if role is Role.PRODUCER:
        found: dict[str, Any] = {
            "queue.buffering.max.kbytes": max(1, values["buffer.memory"] // 1024),
            "queue.buffering.max.messages": 0,
        }
        if (level := f"compression.{values['compression.type']}.level") in given:
            found["compression.level"] = values[level]
        if values["transactional.id"] is not None:
            found["transaction.timeout.ms"] = values["transaction.timeout.ms"]
            # librdkafka wants a record to be given up before its transaction is.
            found["message.timeout.ms"] = min(
                values["delivery.timeout.ms"], values["transaction.timeout.ms"]
            )
        return found
    if role is Role.CONSUMER:
        group = values["group.id"]
        found = {
            "group.id": group or _NO_GROUP,
            "enable.auto.commit": values["enable.auto.commit"] and bool(group),
            "enable.auto.offset.store": False,
            "enable.partition.eof": False,
        }
        if values["group.protocol"] == "classic":
            strategy = values["partition.assignment.strategy"]
            if isinstance(strategy, str):
                found["partition.assignment.strategy"] = strategy
        if values["exclude.internal.topics"]:
            found["topic.blacklist"] = _INTERNAL_TOPICS
        return found
    return {}
