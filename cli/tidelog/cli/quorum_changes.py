"""Voters of the quorum, added and removed (KIP-853).

A voter is a node and its directory. Whoever replaces a disk removes the voter with the old
directory and adds the one with the new.
"""

from __future__ import annotations

import json

from tidelog.cli.brokers import Brokers, fail_on, patiently
from tidelog.cli.failures import CommandFailed, WrongUse
from tidelog.cli.questions import question
from tidelog.cli.quorum import Quorum, Replica, ask_quorum
from tidelog.kernel.ids import Uuid
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import to_kio_uuid

_TIMEOUT_MS = 60_000


def add_voter(bootstrap: str, node: int, directory_id: str | None, *, as_json: bool) -> None:
    given = _parsed(directory_id)
    with Brokers(bootstrap) as brokers:
        quorum = ask_quorum(brokers.any)
        if given is None:
            given = _follower(quorum, node)
        request = question(
            ApiKey.ADD_RAFT_VOTER,
            0,
            cluster_id=quorum.cluster_id,
            timeout=_TIMEOUT_MS,
            voter_id=node,
            voter_directory_id=to_kio_uuid(given),
            listeners=[],
        )
        fail_on(patiently(lambda: brokers.any.ask(request)), f"controller {node} was not added")
    _say("added", node, given, as_json=as_json)


def remove_voter(bootstrap: str, node: int, directory_id: str | None, *, as_json: bool) -> None:
    given = _parsed(directory_id)
    with Brokers(bootstrap) as brokers:
        quorum = ask_quorum(brokers.any)
        if given is None:
            given = _voter(quorum, node)
        request = question(
            ApiKey.REMOVE_RAFT_VOTER,
            0,
            cluster_id=quorum.cluster_id,
            voter_id=node,
            voter_directory_id=to_kio_uuid(given),
        )
        fail_on(patiently(lambda: brokers.any.ask(request)), f"controller {node} was not removed")
    _say("removed", node, given, as_json=as_json)


def _parsed(directory_id: str | None) -> Uuid | None:
    if directory_id is None:
        return None
    try:
        return Uuid.parse(directory_id)
    except ValueError as error:
        raise WrongUse(f"--directory-id {directory_id}: {error}") from None


def _follower(quorum: Quorum, node: int) -> Uuid:
    """Controllers that follow without a vote; brokers have no directory in this list."""
    for one in quorum.observers:
        if one.node_id == node:
            return _directory(one)
    if any(one.node_id == node for one in quorum.voters):
        raise CommandFailed(f"controller {node} has a vote already; tidelog quorum describe")
    raise CommandFailed(
        f"no node {node} follows the metadata log without a vote; start it as a controller, "
        "with controller.quorum.voters naming it and the others, then ask again"
    )


def _voter(quorum: Quorum, node: int) -> Uuid:
    for one in quorum.voters:
        if one.node_id == node:
            return _directory(one)
    there = ", ".join(str(one.node_id) for one in quorum.voters)
    raise CommandFailed(f"controller {node} has no vote; those of {there} have")


def _directory(replica: Replica) -> Uuid:
    return Uuid.parse(replica.directory_id)


def _say(done: str, node: int, directory_id: Uuid, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({done: {"node_id": node, "directory_id": str(directory_id)}}))
    else:
        print(f"Controller {node} with directory {directory_id} was {done}.")
