"""Kafka's ways to reset offsets, as a table."""

from __future__ import annotations

import pytest

from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.offset_reset import (
    Known,
    ShiftBy,
    ToCurrent,
    ToEarliest,
    ToGiven,
    ToLatest,
    ToOffset,
    ToTime,
    Way,
    as_csv,
    parse_csv,
    parse_datetime_ms,
    parse_duration_ms,
    plan_reset,
)

PLACE = ("t", 0)


@pytest.mark.parametrize(
    ("way", "known", "offset", "warned"),
    [
        (ToEarliest(), Known(5, 20, 9), 5, False),
        (ToLatest(), Known(5, 20, 9), 20, False),
        (ToCurrent(), Known(5, 20, 9), 9, False),
        (ToCurrent(), Known(5, 20, None), 20, False),
        (ToCurrent(), Known(5, 20, 2), 5, True),
        (ToOffset(7), Known(5, 20, None), 7, False),
        (ToOffset(1), Known(5, 20, None), 5, True),
        (ToOffset(21), Known(5, 20, None), 20, True),
        (ShiftBy(3), Known(5, 20, 9), 12, False),
        (ShiftBy(-3), Known(5, 20, 9), 6, False),
        (ShiftBy(-9), Known(5, 20, 9), 5, True),
        (ShiftBy(99), Known(5, 20, 9), 20, True),
        (ToTime(1), Known(5, 20, 9, 11), 11, False),
        (ToTime(1), Known(5, 20, 9, None), 20, False),
        (ToGiven({PLACE: 8}), Known(5, 20, 9), 8, False),
        (ToGiven({PLACE: 80}), Known(5, 20, 9), 20, True),
    ],
)
def test_ways(way: Way, known: Known, offset: int, warned: bool) -> None:
    plan = plan_reset(way, {PLACE: known})
    assert plan.offsets == {PLACE: offset}
    assert bool(plan.warnings) is warned
    assert all("t-0" in text and str(offset) in text for text in plan.warnings)


def test_nothing_is_shifted_from_nowhere() -> None:
    with pytest.raises(CommandFailed, match="t-0 since there is no current committed offset"):
        plan_reset(ShiftBy(1), {PLACE: Known(0, 9, None)})


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("P1D", 86_400_000),
        ("PT1H30M", 5_400_000),
        ("P1DT2H3M4S", 93_784_000),
        ("pt1.5s", 1500),
        ("-PT1S", -1000),
    ],
)
def test_durations(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "P1H", "PT1D", "P1DT", "an hour"])
def test_no_durations(text: str) -> None:
    with pytest.raises(WrongUse, match="--by-duration"):
        parse_duration_ms(text)


def test_times() -> None:
    assert parse_datetime_ms("2023-11-14T22:13:20.500") == 1_700_000_000_500
    assert parse_datetime_ms("2023-11-14T23:13:20+01:00") == 1_700_000_000_000
    with pytest.raises(WrongUse, match="--to-datetime soon"):
        parse_datetime_ms("soon")


def test_what_is_exported_is_read() -> None:
    offsets = {("b", 0): 5, ("a", 10): 7, ("a", 9): 0}
    assert as_csv(offsets) == "a,9,0\na,10,7\nb,0,5"
    assert parse_csv(as_csv(offsets).splitlines(), "g") == offsets
    assert parse_csv(["g,a,1,2", "other,a,1,9", "", '"g","b",0,3'], "g") == {
        ("a", 1): 2,
        ("b", 0): 3,
    }


@pytest.mark.parametrize("line", ["a,1", "a,x,3", "a,1,-3", "g,a,1,2,3"])
def test_lines_that_are_none(line: str) -> None:
    with pytest.raises(WrongUse, match="line 1"):
        parse_csv([line], "g")
