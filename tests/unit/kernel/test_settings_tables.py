"""The tables of settings against those read out of Apache Kafka."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tidelog.kernel.settings import TopicConfig
from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.group_table import GROUP_SETTINGS
from tidelog.kernel.settings.kafka_names import (
    KAFKA_BROKER_NAMES,
    KAFKA_GROUP_NAMES,
    KAFKA_OTHER_BROKER_NAMES,
    KAFKA_TOPIC_NAMES,
)
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import Table, Update, parse, to_text

TABLES = Path(__file__).parents[2] / "data" / "golden" / "tables"
SCOPES = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS, "group": GROUP_SETTINGS}

# Where a default or a bound differs from Kafka on purpose, with the reason.
DELIBERATE = {
    "broker.heartbeat.interval.ms": "a session of 3 s needs more than one heartbeat",
    "metadata.max.idle.interval.ms": "an idle cluster lets its disks rest",
    "broker.session.timeout.ms": "streams make a shorter session safe",
    "controller.listener.names": "CONTROLLER unless given, so that a node starts without it",
    "group.coordinator.rebalance.protocols": "no share or streams groups",
    "process.roles": "both roles unless given",
    "socket.listen.backlog.size": "one event loop accepts, between its other work",
    "socket.receive.buffer.bytes": "the system makes it as large as a connection needs",
    "socket.send.buffer.bytes": "only -1 leaves it to the system",
}
# Kafka checks these elsewhere, or its table shows a validator's name instead of a bound.
BOUNDS_SAID_OTHERWISE = {
    "controller.quorum.bootstrap.servers",
    "controller.quorum.voters",
    "group.consumer.assignors",
}


def golden(scope: str) -> dict[str, dict[str, str | bool | None]]:
    return {row["name"]: row for row in json.loads((TABLES / f"{scope}.json").read_text())}


def default_text(row: dict[str, str | bool | None]) -> str | None:
    text = row["default"]
    if row["type"] == "LIST" and isinstance(text, str):
        return text.removeprefix("[").removesuffix("]").replace(", ", ",")
    assert text is None or isinstance(text, str)
    return text


KAFKA_ROWS = [
    pytest.param(scope, name, id=f"{scope}:{name}")
    for scope, table in SCOPES.items()
    for name, row in table.items()
    if not row.ours and name not in KAFKA_OTHER_BROKER_NAMES
]


@pytest.mark.parametrize(("scope", "name"), KAFKA_ROWS)
def test_a_row_says_what_kafka_says(scope: str, name: str) -> None:
    ours, theirs = SCOPES[scope][name], golden(scope)[name]
    assert ours.kind.name == theirs["type"]
    if name in DELIBERATE:
        assert (to_text(ours.default), ours.allowed and str(ours.allowed)) != (
            default_text(theirs),
            theirs["valid"],
        ), "no longer different"
        return
    assert to_text(ours.default) == default_text(theirs)
    assert ours.required == theirs["required"]
    if name not in BOUNDS_SAID_OTHERWISE:
        assert (str(ours.allowed) if ours.allowed is not None else "") == (theirs["valid"] or "")


def test_names_are_those_of_kafka_or_marked_as_ours() -> None:
    assert golden("broker").keys() == KAFKA_BROKER_NAMES
    assert golden("topic").keys() == KAFKA_TOPIC_NAMES
    assert golden("group").keys() == KAFKA_GROUP_NAMES
    ours = {name for table in SCOPES.values() for name, row in table.items() if row.ours}
    assert ours == {
        "broker.stream.grace.ms",
        "compaction.absent.replica.max.ms",
        "eligible.leader.replicas.enable",
        "flush.policy",
        "http.listener",
        "log.dir.min.free.bytes",
        "log.flush.policy",
        "log.flush.stall.timeout.ms",
        "logging.format",
        "logging.level",
        "peer.dial.overrides",
    }
    assert not ours & (KAFKA_BROKER_NAMES | KAFKA_TOPIC_NAMES)


@pytest.mark.parametrize("table", SCOPES.values(), ids=SCOPES)
def test_rows_are_whole(table: Table) -> None:
    for name, row in table.items():
        assert row.name == name
        assert row.doc.endswith(".") and "\n" not in row.doc
        if row.default is not None:
            text = to_text(row.default)
            assert text is not None
            assert row.parse(text) == row.default, f"{name}: the default is not allowed"
        for synonym in row.synonyms:
            other = BROKER_SETTINGS[synonym.name]
            assert (other.kind == row.kind) == (synonym.factor == 1)


def test_every_setting_of_a_node_is_read_by_something() -> None:
    """One that nothing reads would be shown, taken and have no effect, without a warning."""
    root = Path(__file__).parents[3]
    rooms = ("broker", "controller", "coordinator", "kernel", "replication", "storage")
    tables = root / "kernel/tidelog/kernel/settings"
    names_only = {path for path in tables.glob("*.py") if path.stem.endswith(("_rows", "_names"))}
    sources = {path for room in rooms for path in (root / room).rglob("*.py")} - names_only
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(sources))
    assert [name for name in BROKER_SETTINGS if f'"{name}"' not in text] == []


def test_a_topic_setting_and_its_first_broker_setting_agree() -> None:
    for row in TOPIC_SETTINGS.values():
        if row.synonyms:
            broker = BROKER_SETTINGS[row.synonyms[0].name]
            assert broker.update is Update.CLUSTER_WIDE
            assert broker.default in (row.default, None)


def test_the_topic_config_has_every_topic_setting() -> None:
    assert list(TopicConfig.__slots__) == [row.attribute for row in TOPIC_SETTINGS.values()]


def test_default_texts_parse_back() -> None:
    row = BROKER_SETTINGS["log.cleaner.io.max.bytes.per.second"]
    assert to_text(row.default) == "1.7976931348623157E308"
    assert parse(row.kind, "1.7976931348623157E308") == row.default
