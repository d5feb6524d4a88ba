"""Parsing of values by Kafka's rules, and the words of objections."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.kernel.settings import InvalidSettings, InvalidValue, parse_topic_overrides
from tidelog.kernel.settings.nearest import distance, nearest
from tidelog.kernel.settings.topic_table import TOPIC_SETTINGS
from tidelog.kernel.settings.types import (
    Kind,
    OneOf,
    Range,
    Synonym,
    ThrottledReplicas,
    Value,
    parse,
    to_text,
)

CASES = Path(__file__).parents[2] / "data" / "golden" / "errors" / "cases.jsonl"


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " TRUE ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, " 42 ", 42),
        (Kind.INT, "+7", 7),
        (Kind.INT, "-2147483648", -(2**31)),
        (Kind.INT, "0000000000000000000000001", 1),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.SHORT, "32767", 32767),
        (Kind.DOUBLE, "0.5", 0.5),
        (Kind.DOUBLE, "1e3", 1000.0),
        (Kind.DOUBLE, ".5d", 0.5),
        (Kind.STRING, " a b ", "a b"),
        (Kind.CLASS, " org.Example ", "org.Example"),
        (Kind.PASSWORD, " kept ", " kept "),
        (Kind.LIST, "", ()),
        (Kind.LIST, "  ", ()),
        (Kind.LIST, "a , b,c", ("a", "b", "c")),
        (Kind.LIST, "a,b,a", ("a", "b")),
    ],
)
def test_values_that_parse(kind: Kind, text: str, value: Value) -> None:
    assert parse(kind, text) == value
    assert type(parse(kind, text)) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "yes"),
        (Kind.BOOLEAN, ""),
        (Kind.INT, ""),
        (Kind.INT, "1_000"),
        (Kind.INT, "1.0"),
        (Kind.INT, "0x10"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "9" * 5000),
        (Kind.LONG, "9223372036854775808"),
        (Kind.SHORT, "32768"),
        (Kind.DOUBLE, "half"),
        (Kind.DOUBLE, "1e"),
        (Kind.LIST, "a,,b"),
        (Kind.LIST, ","),
    ],
)
def test_values_that_do_not(kind: Kind, text: str) -> None:
    with pytest.raises(InvalidValue):
        parse(kind, text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "true"),
        (3, "3"),
        (0.9, "0.9"),
        (0.0, "0.0"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (0.0001, "1.0E-4"),
        (("a", "b"), "a,b"),
        ((), ""),
        (None, None),
    ],
)
def test_texts_are_javas(value: Value, text: str | None) -> None:
    assert to_text(value) == text


@pytest.mark.parametrize(
    ("allowed", "value", "right"),
    [
        (Range(0), 0, True),
        (Range(0), -1, False),
        (Range(0, 1), 1.0, True),
        (Range(0, 1), 1.01, False),
        (Range(0, 1), float("nan"), False),
        (Range(1, 9, extra=-1), -1, True),
        (Range(1, 9, extra=-1), 0, False),
        (Range(1, 9, extra=-1), 10, False),
        (OneOf(("a", "b")), "b", True),
        (OneOf(("a", "b")), "B", False),
        (OneOf(("a", "b"), any_case=True), "B", True),
        (OneOf(("a", "b")), ("a", "c"), False),
        (OneOf(("a", "b")), (), True),
        (ThrottledReplicas(), ("*",), True),
        (ThrottledReplicas(), ("0:1", "12:3"), True),
        (ThrottledReplicas(), ("*", "0:1"), False),
        (ThrottledReplicas(), ("bad",), False),
    ],
)
def test_what_is_allowed(
    allowed: Range | OneOf | ThrottledReplicas, value: Value, right: bool
) -> None:
    assert (allowed.objection(value) is None) == right


def test_units_convert_and_below_zero_means_unlimited() -> None:
    hours = Synonym("log.retention.hours", 3_600_000)
    assert hours.convert(168) == 604_800_000
    assert hours.convert(-5) == -1
    assert hours.convert(None) is None
    assert Synonym("log.retention.ms").convert(-1) == -1


def objections_of_kafka() -> list[tuple[str, str, str]]:
    pattern = re.compile(r'(Invalid value ([^" ]+) for configuration ([^" ]+): [^"]*)"')
    found = {match.groups() for match in pattern.finditer(CASES.read_text())}
    return sorted(
        (name, value, text)
        for text, value, name in found
        if name in TOPIC_SETTINGS and "throttled" not in name
    )


def test_objections_are_worded_as_kafka_words_them() -> None:
    cases = objections_of_kafka()
    assert len(cases) >= 25
    for name, value, text in cases:
        with pytest.raises(InvalidSettings) as refused:
            parse_topic_overrides({name: value})
        assert refused.value.errors == (text,)


def test_unknown_topic_settings_are_refused_in_kafkas_words() -> None:
    names = {
        json.loads(f'"{name}"')
        for name in re.findall(r'"Unknown topic config name: ([^"]*)"', CASES.read_text())
    }
    assert "RETENTION.MS" in names
    for name in names:
        with pytest.raises(InvalidSettings) as refused:
            parse_topic_overrides({name: "1"})
        assert refused.value.errors == (f"Unknown topic config name: {name}",)


def slow_distance(one: str, other: str) -> int:
    if not one or not other:
        return len(one) + len(other)
    return min(
        slow_distance(one[1:], other) + 1,
        slow_distance(one, other[1:]) + 1,
        slow_distance(one[1:], other[1:]) + (one[0] != other[0]),
    )


@settings(derandomize=True, max_examples=200)
@given(st.text("ab.", max_size=5), st.text("ab.", max_size=5), st.integers(0, 6))
def test_distance_equals_the_slow_one(one: str, other: str, limit: int) -> None:
    assert distance(one, other, limit) == min(slow_distance(one, other), limit + 1)


def test_nearest() -> None:
    names = ["log.retention.hours", "log.retention.ms", "node.id"]
    assert nearest("log.retention.hour", names, 2) == "log.retention.hours"
    assert nearest("nod.id", names, 2) == "node.id"
    assert nearest("cluster.id", names, 2) is None
