"""``tidelog quorum describe``: the numbers, and Kafka's lay-out of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from scripted_cluster import ScriptedConnection

from tidelog.cli.quorum import Quorum, Replica, as_object, replication_table, status_lines
from tidelog.kernel.errors import ErrorCode
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.kio_values import duration_i32
from tidelog.wire.protocol.responses import ResponseStructs

Run = Callable[..., Any]
ZERO = "A" * 22


def replica(node_id: int, end: int, caught_up_ms: int, status: str, *where: str) -> Replica:
    return Replica(node_id, ZERO, end, caught_up_ms, caught_up_ms, status, where)


def quorum(*voters: Replica, observers: tuple[Replica, ...] = ()) -> Quorum:
    return Quorum("4L6g3nShT-eMCtK--X86sw", 2, 7, 125, voters, observers)


LEADER = replica(2, 128, 1_000_679, "Leader", "CONTROLLER://127.0.0.1:19392")
BEHIND = replica(1, 120, 1_000_494, "Follower", "CONTROLLER://127.0.0.1:19391")
LEVEL = replica(3, 128, 1_000_492, "Follower")


def test_the_table_is_laid_out_as_kafka_s() -> None:
    """Taken from kafka-metadata-quorum 4.3.1, but for the numbers."""
    assert replication_table(quorum(BEHIND, LEADER, LEVEL), None) == [
        "NodeId\tDirectoryId           \tLogEndOffset\tLag\tLastFetchTimestamp\t"
        "LastCaughtUpTimestamp\tStatus  \t",
        f"2     \t{ZERO}\t128         \t0  \t1000679           \t1000679              \tLeader  \t",
        f"1     \t{ZERO}\t120         \t8  \t1000494           \t1000494              \tFollower\t",
        f"3     \t{ZERO}\t128         \t0  \t1000492           \t1000492              \tFollower\t",
    ]


def test_ages_instead_of_timestamps() -> None:
    lines = replication_table(quorum(LEADER, replica(1, 9, -1, "Follower")), 1_000_700)
    assert "21 ms ago         \t21 ms ago            \t" in lines[1]
    assert "-1                \t-1                   \t" in lines[2]


def test_the_status_is_laid_out_as_kafka_s() -> None:
    observer = Replica(4, "vq3vBNGbQYeDwvSlcxtvcg", 128, 1, 1, "Observer")
    assert status_lines(quorum(BEHIND, LEADER, observers=(observer,))) == [
        "ClusterId:              4L6g3nShT-eMCtK--X86sw",
        "LeaderId:               2",
        "LeaderEpoch:            7",
        "HighWatermark:          125",
        "MaxFollowerLag:         8",
        "MaxFollowerLagTimeMs:   185",
        'CurrentVoters:          [{"id": 1, "endpoints": ["CONTROLLER://127.0.0.1:19391"]}, '
        '{"id": 2, "endpoints": ["CONTROLLER://127.0.0.1:19392"]}]',
        'CurrentObservers:       [{"id": 4, "directoryId": "vq3vBNGbQYeDwvSlcxtvcg"}]',
    ]


@pytest.mark.parametrize(
    ("voters", "lag_ms"),
    [((LEADER,), 0), ((LEADER, BEHIND), 185), ((replica(1, 9, -1, "Follower"), LEADER), -1)],
)
def test_the_lag_in_time(voters: tuple[Replica, ...], lag_ms: int) -> None:
    assert quorum(*voters).max_follower_lag_ms == lag_ms


def test_json_has_every_number() -> None:
    shown = json.loads(json.dumps(as_object(quorum(BEHIND, LEADER))))
    assert [(row["node_id"], row["lag"]) for row in shown["replicas"]] == [(2, 0), (1, 8)]
    assert (shown["leader_id"], shown["max_follower_lag"]) == (2, 8)


# --- the command --------------------------------------------------------------------------------


def describe_quorum(
    leader_id: int = 1, top: ErrorCode = ErrorCode.NONE, inner: ErrorCode = ErrorCode.NONE
) -> Callable[[Any, ResponseStructs], Any]:
    def answer(request: Any, structs: ResponseStructs) -> Any:
        assert request.topics[0].topic_name == "__cluster_metadata"
        voter = structs.struct(
            "ReplicaState",
            replica_id=1,
            replica_directory_id=None,
            log_end_offset=5,
            last_fetch_timestamp=6,
            last_caught_up_timestamp=7,
        )
        partition = structs.struct(
            "PartitionData",
            partition_index=0,
            error_code=inner,
            error_message=None,
            leader_id=leader_id,
            leader_epoch=3,
            high_watermark=4,
            current_voters=(voter,),
            observers=(),
        )
        topic = structs.struct("TopicData", topic_name="t", partitions=(partition,))
        return structs.response(error_code=top, error_message=None, topics=(topic,), nodes=())

    return answer


def describe_cluster(request: Any, structs: ResponseStructs) -> Any:
    return structs.response(
        throttle_time=duration_i32(0),
        error_code=ErrorCode.NONE,
        error_message=None,
        cluster_id="tide",
        controller_id=1,
        brokers=(),
        cluster_authorized_operations=0,
    )


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def use(**options: Any) -> None:
        answers = {
            ApiKey.DESCRIBE_QUORUM: describe_quorum(**options),
            ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        }
        monkeypatch.setattr(
            "tidelog.cli.quorum.Connection", lambda bootstrap: ScriptedConnection(answers)
        )

    return use


def test_the_status_comes_unasked(tidelog: Run, script: Callable[..., None]) -> None:
    script()
    plain, asked = tidelog("quorum", "describe"), tidelog("quorum", "describe", "--status")
    assert plain.out == asked.out
    assert plain.out.startswith("ClusterId:              tide\nLeaderId:               1\n")


def test_replication_and_json(tidelog: Run, script: Callable[..., None]) -> None:
    script()
    assert tidelog("quorum", "describe", "--replication").out.splitlines()[1].startswith("1 ")
    assert json.loads(tidelog("quorum", "describe", "--json").out)["leader_epoch"] == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"leader_id": -1}, "no leader at the moment"),
        ({"top": ErrorCode.CLUSTER_AUTHORIZATION_FAILED}, "cannot be described"),
        ({"inner": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}, "cannot be described"),
    ],
)
def test_errors_of_the_quorum(
    tidelog: Run, script: Callable[..., None], options: dict[str, Any], said: str
) -> None:
    script(**options)
    ran = tidelog("quorum", "describe")
    assert (ran.code, ran.out) == (1, "")
    assert said in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("describe", "--human-readable"),
        ("describe", "--status", "--replication"),
        ("describe", "--colour"),
        ("describe", "-b", "nowhere"),
        ("undescribe",),
    ],
)
def test_wrong_uses(tidelog: Run, arguments: tuple[str, ...]) -> None:
    assert tidelog("quorum", *arguments).code == 2
