"""What the quorum refuses is said in words that whoever asked can do something with."""

from __future__ import annotations

import pytest

from tidelog.controller.quorum.errors import IN_WORDS, RequestRefused
from tidelog.controller.quorum.interface import NotController
from tidelog.controller.quorum.requests import refusal
from tidelog.controller.raft.effects import RejectReason
from tidelog.kernel.ids import NodeId


@pytest.mark.parametrize("reason", RejectReason)
def test_every_reason_is_a_clause(reason: RejectReason) -> None:
    words = IN_WORDS[reason]
    assert len(words.split()) >= 5
    assert reason.value not in words
    assert words[0].islower() and not words.endswith(".")
    assert str(RequestRefused(reason, "add controller 4")) == f"add controller 4: {words}"


def test_a_proposal_that_the_leader_does_not_take() -> None:
    found = refusal(RejectReason.TRANSFERRING, NodeId(2), 1)
    assert isinstance(found, NotController)
    assert "handing over to another controller" in str(found)
