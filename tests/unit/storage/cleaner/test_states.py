"""Which logs the cleaner leaves alone."""

from __future__ import annotations

import pytest
from log_lab import ROOT, TP

from tidelog.kernel.ids import Offset, PartitionIndex, TopicPartition
from tidelog.simulation import SimDisk, SimRandom
from tidelog.storage.cleaner.clean_points import CleanPoints
from tidelog.storage.cleaner.report import CleaningReport, Outcome
from tidelog.storage.cleaner.states import CleaningStates

OTHER = TopicPartition("other", PartitionIndex(3))


def ended(outcome: Outcome, reason: str = "") -> CleaningReport:
    return CleaningReport(TP, Offset(0), outcome, reason)


def test_a_pass_begins_once() -> None:
    states = CleaningStates()
    states.begin(TP)
    assert states.is_in_progress(TP)
    assert not states.is_free(TP)
    with pytest.raises(ValueError, match="in progress"):
        states.begin(TP)
    states.finished(ended(Outcome.CLEANED))
    assert states.is_free(TP)
    with pytest.raises(KeyError):
        states.finished(ended(Outcome.CLEANED))


def test_pauses_are_counted() -> None:
    states = CleaningStates()
    assert states.pause(TP) is False
    assert states.pause(TP) is False
    states.resume(TP)
    assert states.is_paused(TP)
    with pytest.raises(ValueError, match="paused"):
        states.begin(TP)
    states.resume(TP)
    assert states.is_free(TP)
    with pytest.raises(ValueError, match="not paused"):
        states.resume(TP)


def test_whoever_pauses_learns_that_a_pass_has_to_be_aborted() -> None:
    states = CleaningStates()
    states.begin(TP)
    assert states.pause(TP) is True
    states.finished(ended(Outcome.ABORTED))
    assert not states.is_free(TP)
    states.resume(TP)
    assert states.is_free(TP)


@pytest.mark.parametrize(
    ("outcome", "is_free"),
    [
        (Outcome.CLEANED, True),
        (Outcome.ABORTED, True),
        (Outcome.DISK_FULL, True),
        (Outcome.UNCLEANABLE, False),
    ],
)
def test_only_bad_bytes_make_a_log_uncleanable(outcome: Outcome, is_free: bool) -> None:
    states = CleaningStates()
    states.begin(TP)
    states.finished(ended(outcome, "a bad batch at 61"))
    assert states.is_free(TP) is is_free
    assert states.is_free(OTHER)
    assert states.uncleanable_logs == ({} if is_free else {TP: "a bad batch at 61"})


def test_a_deleted_log_is_forgotten() -> None:
    states = CleaningStates()
    states.begin(TP)
    states.finished(ended(Outcome.UNCLEANABLE, "bad"))
    states.pause(TP)
    states.forget(TP)
    assert states.is_free(TP)
    assert states.uncleanable(TP) is None


def test_clean_points_are_kept_across_restarts() -> None:
    disk = SimDisk()
    disk.make_dirs(ROOT)
    points = CleanPoints(disk, ROOT)
    assert points.get(TP) is None
    points.set(TP, Offset(17))
    points.set(OTHER, Offset(3))
    again = CleanPoints(disk.kill(), ROOT)
    assert (again.get(TP), again.get(OTHER), again.flaw) == (17, 3, None)
    again.keep_only({OTHER})
    assert (again.get(TP), again.get(OTHER)) == (None, 3)


def test_a_point_is_lowered_for_good() -> None:
    disk = SimDisk()
    disk.make_dirs(ROOT)
    points = CleanPoints(disk, ROOT)
    points.set(TP, Offset(17))
    points.set(OTHER, Offset(3))
    points.lower(TP, Offset(20))
    points.lower(TP, Offset(5))
    points.lower(OTHER, Offset(4))
    assert (points.get(TP), points.get(OTHER)) == (5, 3)
    again = CleanPoints(disk.kill(), ROOT)
    assert (again.get(TP), again.get(OTHER)) == (5, 3)


def test_a_point_that_cannot_be_lowered_on_a_full_disk_is_taken_back() -> None:
    """Believed, it would let cleaners pass over what is written behind the cut (hazard 23)."""
    disk = SimDisk()
    disk.make_dirs(ROOT)
    points = CleanPoints(disk, ROOT)
    points.set(TP, Offset(17))
    points.set(OTHER, Offset(3))
    disk.faults.capacity_bytes = disk.used_bytes
    points.lower(TP, Offset(5))
    assert (points.get(TP), points.get(OTHER)) == (5, 3)
    for seed in range(10):
        after = CleanPoints(disk.power_loss(SimRandom(seed)), ROOT)
        assert (after.get(TP), after.get(OTHER)) == (None, None)


def test_points_are_written_again_when_there_is_room() -> None:
    disk = SimDisk()
    disk.make_dirs(ROOT)
    points = CleanPoints(disk, ROOT)
    points.set(TP, Offset(17))
    points.set(OTHER, Offset(3))
    disk.faults.capacity_bytes = disk.used_bytes
    points.lower(TP, Offset(5))
    disk.faults.capacity_bytes = None
    points.set(OTHER, Offset(9))
    again = CleanPoints(disk.kill(), ROOT)
    assert (again.get(TP), again.get(OTHER)) == (5, 9)


def test_a_corrupt_checkpoint_costs_a_pass() -> None:
    disk = SimDisk()
    disk.make_dirs(ROOT)
    disk.open(f"{ROOT}/cleaner-offset-checkpoint", create=True).pwrite(b"7\n", 0)
    points = CleanPoints(disk, ROOT)
    assert points.get(TP) is None
    assert points.flaw is not None
    assert "dirty" in points.flaw
