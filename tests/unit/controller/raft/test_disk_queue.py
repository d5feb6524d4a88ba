"""Promises wait for the write they depend on, and old confirmations do not count for new bytes."""

from __future__ import annotations

import pytest

from tidelog.controller.raft import BrokenInvariant
from tidelog.controller.raft.disk_queue import DiskQueue, OwnVote
from tidelog.controller.raft.model import Term
from tidelog.kernel.ids import Offset


def test_a_promise_is_released_with_its_write_and_all_before_it() -> None:
    disk = DiskQueue(Offset(0))
    first, second = disk.number_state_write(), disk.number_log_write(Offset(5))
    disk.withhold(first, OwnVote(Term(1)))
    disk.withhold(second, OwnVote(Term(2)))
    assert disk.persisted(first) == [OwnVote(Term(1))]
    assert disk.durable_end == 0
    assert disk.persisted(second) == [OwnVote(Term(2))]
    assert disk.durable_end == 5


def test_one_confirmation_covers_all_earlier_writes() -> None:
    disk = DiskQueue(Offset(2))
    disk.number_log_write(Offset(3))
    disk.number_log_write(Offset(7))
    last = disk.number_state_write()
    disk.persisted(last)
    assert disk.durable_end == 7


def test_a_cut_log_is_durable_only_up_to_the_cut() -> None:
    disk = DiskQueue(Offset(4))
    old = disk.number_log_write(Offset(9))
    disk.cut(Offset(2))
    new = disk.number_log_write(Offset(9))
    assert disk.durable_end == 2
    disk.persisted(old)
    assert disk.durable_end == 2
    disk.persisted(new)
    assert disk.durable_end == 9


def test_a_confirmation_may_come_twice_but_not_from_the_future() -> None:
    disk = DiskQueue(Offset(0))
    write = disk.number_log_write(Offset(1))
    assert disk.persisted(write) == []
    assert disk.persisted(write) == []
    with pytest.raises(BrokenInvariant, match="confirms write 2 of 1"):
        disk.persisted(write + 1)
