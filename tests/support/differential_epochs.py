"""golden/errors/epoch-cases.jsonl against a live cluster: the ends of leader epochs, and fences.

The recorded broker got its leader epochs from restarts. Here two replicas change places as the
preferred leader until the epoch is the one wanted, which works on any cluster of two brokers.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from differential import Finding, Ids, Plain, Recorded, compare
from live_target import SECONDS_20, Target
from protocol_golden import GOLDEN

from tidelog.wire.protocol.apis import ApiKey

TOPIC: Final = "epochs"
_PREFERRED: Final = 0
_LAST_EPOCH: Final = 18
_PATIENCE_S: Final = 30.0


def set_up(target: Target) -> Ids:
    """The log of golden/segments/epochs, written in the same epochs."""
    case = GOLDEN / "segments" / "epochs"
    described: Plain = json.loads((case / "input.json").read_text(encoding="utf-8"))
    sent = (case / "sent.bin").read_bytes()
    brokers = sorted(target.brokers)[:2]
    target.delete_topics([TOPIC] if TOPIC in target.topic_ids() else [])
    target.create_topic(TOPIC, configs={"retention.ms": "-1"}, replicas=brokers)
    target.await_topic(TOPIC)
    epoch = 0
    for step in described["steps"]:
        if step["op"] == "restart":
            epoch += 2  # it was led by nobody in between
            lead_in_epoch(target, epoch)
        elif step["op"] == "produce":
            batch = sent[step["sentPosition"] : step["sentPosition"] + step["sentLength"]]
            target.produce(TOPIC, batch, node=_partition(target).leader_id)
    lead_in_epoch(target, _LAST_EPOCH)
    ids = Ids()
    ids.learn_topic(described["topicId"], str(target.topic_ids()[TOPIC]))
    return ids


def lead_in_epoch(target: Target, epoch: int) -> None:
    """Change the leader until the partition is led in this epoch."""
    deadline = time.monotonic() + _PATIENCE_S
    while (now := _partition(target)).leader_epoch < epoch:
        assert time.monotonic() < deadline, f"{TOPIC} is led in epoch {now.leader_epoch}"
        if len(now.isr_nodes) < 2 or now.leader_id < 0:
            time.sleep(0.02)
            continue
        other = next(node for node in now.replica_nodes if node != now.leader_id)
        _prefer(target, [other, now.leader_id])
        _elect(target)
    assert now.leader_epoch == epoch, f"{TOPIC} is led in epoch {now.leader_epoch} already"


def _partition(target: Target) -> Any:
    return target.topic(TOPIC).partitions[0]


def _prefer(target: Target, replicas: list[int]) -> None:
    answer = target.admin.ask(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        0,
        timeout=SECONDS_20,
        topics=[{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": replicas}]}],
    )
    assert int(answer.error_code) == 0, answer


def _elect(target: Target) -> None:
    target.admin.ask(
        ApiKey.ELECT_LEADERS,
        2,
        election_type=_PREFERRED,
        topic_partitions=[{"topic": TOPIC, "partitions": [0]}],
        timeout=SECONDS_20,
    )


def replay(target: Target, ids: Ids) -> tuple[int, list[Finding]]:
    """How many calls were compared, and those with another answer."""
    findings: list[Finding] = []
    calls = 0
    text = (GOLDEN / "errors" / "epoch-cases.jsonl").read_text(encoding="utf-8")
    with target.connect(_partition(target).leader_id) as connection:
        for case in map(json.loads, text.splitlines()):
            if not target.compares(case["apiKey"]) or case["api"] == "DescribeProducers":
                continue  # the last asks about producers of other topics
            calls += 1
            call = Recorded(
                (case["api"], case["note"]),
                case["apiKey"],
                case["version"],
                bytes.fromhex(case["requestHex"]),
                case["outcome"],
                bytes.fromhex(case["responseHex"])[4:],
            )
            answer = connection.exchange(ids.to_live(call.request))
            finding = compare(call, answer, ids)
            if finding is not None:
                findings.append(finding)
    return calls, findings
