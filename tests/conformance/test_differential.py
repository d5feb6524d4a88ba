"""Raw requests that Apache Kafka 4.3.1 answered, and our answers to them.

Every difference is fixed or listed in ``known_differences`` with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import differential_epochs
import differential_errors
import differential_wire
import pytest
from differential import Finding, Judgement, judge, unequal
from golden_replay import error_setup
from known_differences import ADMINISTRATION, DATA, GROUPS, LIVE_ADMINISTRATION, TRANSACTIONS, WIRE
from live_target import BUILT, Target
from node_log import NodeLog
from protocol_golden import GOLDEN

from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.testing.local_cluster import LocalCluster
from tidelog.wire.protocol.apis import ApiKey

pytestmark = pytest.mark.xdist_group("cluster")


@pytest.fixture(scope="module")
def lone_node() -> Iterator[Target]:
    """One node, set up as the recorded one was."""
    given = dict(line.split("=", 1) for line in error_setup()["serverProperties"])
    settings = {name: value for name, value in given.items() if name in BROKER_SETTINGS}
    log = NodeLog()
    with LocalCluster(1, settings=settings, on_line=log.add) as running:
        yield Target(running.bootstrap)
        running.kill_all()
    assert not log.unforeseen()


def told(finding: Finding) -> str:
    return f"{finding.call.key}: {list(unequal(finding.ours, finding.theirs))}"


def assert_as_expected(judgement: Judgement) -> None:
    assert not judgement.unexpected, "\n".join(map(told, judgement.unexpected))
    assert not judgement.stale, "these differences are none any more"


def test_invalid_and_edge_requests_get_kafkas_answers(lone_node: Target) -> None:
    ids = differential_errors.set_up(lone_node)
    calls, findings = differential_errors.replay(lone_node, ids)
    assert calls > 740
    assert_as_expected(
        judge(findings, ADMINISTRATION | LIVE_ADMINISTRATION | DATA | GROUPS | TRANSACTIONS)
    )


def test_what_clients_sent_gets_kafkas_answers(lone_node: Target) -> None:
    runs = differential_wire.runs(lone_node)
    assert len(runs) >= 42
    assert {"java-admin", "java-group-classic", "java-produce-zstd"} <= set(runs)
    findings: list[Finding] = []
    calls = 0
    for run in runs:
        compared, found = differential_wire.replay(lone_node, run)
        calls += compared
        findings += found
    assert calls > 600
    assert_as_expected(judge(findings, WIRE))


def test_leader_epochs_end_where_kafkas_do(cluster: LocalCluster) -> None:
    target = Target(cluster.bootstrap)
    calls, findings = differential_epochs.replay(target, differential_epochs.set_up(target))
    assert calls == 160
    assert_as_expected(judge(findings, {}))


def test_advertised_versions_are_kafkas(lone_node: Target) -> None:
    theirs = json.loads((GOLDEN / "wire" / "api_versions.json").read_text(encoding="utf-8"))["apis"]
    assert lone_node.advertised.keys() == {int(key) for key in BUILT}
    for key, versions in lone_node.advertised.items():
        # Brokers ask each other over gRPC, so the versions for that are not served.
        newest = 3 if key == ApiKey.ADD_PARTITIONS_TO_TXN else theirs[str(key)]["max"]
        assert list(versions) == [theirs[str(key)]["min"], newest]
