"""Disks and calendars that take orders are opened only where a test has asked for them, aloud."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from tidelog.broker.real_ports import CannotStart, _disk_and_clock
from tidelog.kernel.real import OsDisk, SystemClock
from tidelog.kernel.real.rigged_disk import RiggedDisk
from tidelog.kernel.real.rigging import SWITCHES, RiggedClock
from tidelog.kernel.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings.of({"process.roles": "broker", "log.dirs": str(tmp_path / "data")})


def test_without_the_variable_all_is_the_machines_own(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in (None, ""):
        if value is None:
            monkeypatch.delenv(SWITCHES, raising=False)
        else:
            monkeypatch.setenv(SWITCHES, value)
        disk, clock, acknowledges_early = _disk_and_clock(settings)
        assert (type(disk), type(clock), acknowledges_early) == (OsDisk, SystemClock, False)


@pytest.mark.parametrize(
    ("value", "disk_kind", "clock_kind", "early"),
    [
        ("rigged", RiggedDisk, RiggedClock, False),
        ("ack-before-replication", OsDisk, SystemClock, True),
        ("rigged,ack-before-replication", RiggedDisk, RiggedClock, True),
    ],
)
def test_what_is_switched_on_is_said_aloud(
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    value: str,
    disk_kind: type,
    clock_kind: type,
    early: bool,
) -> None:
    monkeypatch.setenv(SWITCHES, value)

    with caplog.at_level(logging.WARNING):
        disk, clock, acknowledges_early = _disk_and_clock(settings)
    assert (type(disk), type(clock), acknowledges_early) == (disk_kind, clock_kind, early)
    assert "THIS NODE IS NOT SAFE" in caplog.text


def test_a_word_that_means_nothing_stops_the_node(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWITCHES, "riged")

    with pytest.raises(CannotStart, match="has riged; there are rigged"):
        _disk_and_clock(settings)
