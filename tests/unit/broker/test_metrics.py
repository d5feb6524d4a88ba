"""Metrics: one table, pages that Prometheus reads, made without holding up the event loop."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from pathlib import Path

import pytest
from pretended_node import PretendedNode, group, replica
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from tidelog.broker.metrics import collecting
from tidelog.broker.metrics.collecting import Collector
from tidelog.broker.metrics.docs import render
from tidelog.broker.metrics.loop_lag import LoopLag
from tidelog.broker.metrics.page import Page, labels
from tidelog.broker.metrics.process_facts import process_samples
from tidelog.broker.metrics.recent import Recent
from tidelog.broker.metrics.state_changes import StateChanges
from tidelog.broker.metrics.table import METRICS, SECTIONS, Kind
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NodeId
from tidelog.kernel.meters import Spread
from tidelog.simulation import run_simulation
from tidelog.wire.protocol.apis import APIS, ApiKey

DOCS = Path(__file__).parents[3] / "docs" / "METRICS.md"
NOT_LABELS = {
    "client",
    "client_id",
    "client-id",
    "user",
    "member",
    "host",
    "address",
    "error_message",
}


# --- the table --------------------------------------------------------------------------------


def test_the_page_of_documentation_is_current() -> None:
    make = "python -m tidelog.broker.metrics.docs > docs/METRICS.md"
    assert DOCS.read_text(encoding="utf-8") == render(), f"run: {make}"


def test_no_metric_is_listed_twice() -> None:
    assert len(METRICS) == sum(len(section) for section in SECTIONS.values())


@pytest.mark.parametrize("name", METRICS)
def test_a_row_keeps_prometheus_rules(name: str) -> None:
    metric = METRICS[name]
    assert re.fullmatch(r"(kafka|tidelog|process|python)_[a-z0-9_]+", name)
    assert name.endswith("_total") == (metric.kind is Kind.COUNTER)
    assert metric.help.endswith(".")
    for label in (*metric.labels, *metric.optional):
        assert re.fullmatch(r"[a-zA-Z_]+", label)
        assert label == "member" or label not in NOT_LABELS, "clients choose its values"


@pytest.mark.parametrize(
    "name",
    [
        "kafka_server_replicamanager_underreplicatedpartitions",
        "kafka_server_replicamanager_isrshrinks_total",
        "kafka_controller_kafkacontroller_activecontrollercount",
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        "kafka_server_brokertopicmetrics_bytesin_total",
        "kafka_network_requestmetrics_totaltimems",
        "kafka_consumergroup_lag",
    ],
)
def test_dashboards_find_their_names(name: str) -> None:
    assert name in METRICS


# --- pages ------------------------------------------------------------------------------------


def collector(node: PretendedNode) -> Collector:
    changes = StateChanges(NodeId(1))
    changes.counts["leader"] += 1
    return Collector(node, changes, LoopLag(), version="1.2.3")


def families(node: PretendedNode) -> dict[str, Family]:
    text = asyncio.run(collector(node).page(0.0)).decode()
    return {family.name: family for family in text_string_to_metric_families(text)}


def family_of(found: dict[str, Family], name: str) -> Family:
    """The parser takes the end off counters' names."""
    return found[name.removesuffix("_total")]


def value(found: dict[str, Family], name: str, **wanted: str) -> float:
    [sample] = [
        one for one in family_of(found, name).samples if one.name == name and one.labels == wanted
    ]
    return float(sample.value)


def test_a_node_with_everything_tells_every_metric_of_the_table() -> None:
    found = families(PretendedNode())
    assert {name.removesuffix("_total") for name in METRICS} == found.keys()


def test_types_and_labels_are_those_of_the_table() -> None:
    found = families(PretendedNode())
    for name, metric in METRICS.items():
        family = family_of(found, name)
        assert family.type == metric.kind.value
        assert family.documentation == metric.help
        allowed = set(metric.labels) | set(metric.optional)
        for sample in family.samples:
            given = set(sample.labels) - {"le", "quantile"}
            assert set(metric.labels) <= given <= allowed


def test_what_is_told_of_replicas() -> None:
    found = families(PretendedNode())
    manager = "kafka_server_replicamanager_"
    counts = {
        "partitioncount": 5, "leadercount": 3, "underreplicatedpartitions": 2,
        "underminisrpartitioncount": 1, "atminisrpartitioncount": 1, "offlinereplicacount": 1,
        "partitionswithlatetransactionscount": 1,
    }  # fmt: skip
    assert {name: value(found, manager + name) for name in counts} == counts
    assert value(found, "kafka_server_replicafetchermanager_maxlag") == 5
    follower = {"topic": "t", "partition": "0", "follower": "3"}
    assert value(found, "tidelog_replication_follower_lag", **follower) == 7
    assert value(found, "tidelog_replication_follower_max_lag", follower="3") == 7
    partition = {"topic": "t", "partition": "1"}
    assert value(found, "kafka_cluster_partition_insyncreplicascount", **partition) == 2
    assert value(found, "kafka_cluster_partition_laststableoffsetlag", **partition) == 10
    assert value(found, "kafka_log_log_logendoffset", **partition) == 100
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    assert value(found, purgatory, delayedOperation="Produce") == 5
    assert value(found, purgatory, delayedOperation="Fetch") == 2


def test_sums_and_topics_stand_side_by_side() -> None:
    found = families(PretendedNode())
    name = "kafka_server_brokertopicmetrics_bytesin_total"
    assert value(found, name) == 1000
    assert value(found, name, topic="t") == 1000
    messages = "kafka_server_brokertopicmetrics_messagesin_total"
    assert value(found, messages, topic='odd"name') == 3


def test_what_is_told_of_requests() -> None:
    found = families(PretendedNode())
    assert value(found, "kafka_network_requestmetrics_requests_total", request="Produce") == 1
    name = "tidelog_request_duration_seconds"
    buckets = {
        sample.labels["le"]: sample.value
        for sample in found[name].samples
        if sample.name == f"{name}_bucket" and sample.labels["request"] == "FetchConsumer"
    }
    assert (buckets["0.002"], buckets["0.004"], buckets["+Inf"]) == (0, 1, 1)
    errors = "kafka_network_requestmetrics_errors_total"
    assert value(found, errors, request="Produce", error="NOT_ENOUGH_REPLICAS") == 1


def test_damaged_batches_are_counted_under_kafkas_name() -> None:
    node = PretendedNode()
    assert node.broker is not None
    for _ in range(2):
        node.broker.requests.failed(APIS[ApiKey.PRODUCE], ErrorCode.CORRUPT_MESSAGE)
    name = "kafka_server_brokertopicmetrics_invalidmessagecrcrecords_total"
    assert value(families(node), name) == 2


def test_lag_is_told_where_the_end_is_known() -> None:
    found = families(PretendedNode())
    place = {"consumergroup": 'odd"group', "topic": "t", "partition": "0"}
    assert value(found, "kafka_consumergroup_lag", **place) == 20
    assert value(found, "kafka_consumergroup_current_offset", **place) == 70
    lags = found["kafka_consumergroup_lag"].samples
    assert {sample.labels["topic"] for sample in lags} == {"t"}


def test_a_page_tells_of_so_many_groups_and_counts_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(collecting, "MAX_GROUPS", 3)
    found = families(PretendedNode(coordinated=[group(f"g{n}") for n in range(5)]))
    assert len(found["kafka_consumergroup_members"].samples) == 3
    assert value(found, "tidelog_scrape_groups_left_out") == 2
    assert value(found, "kafka_coordinator_group_groupmetadatamanager_numgroups") == 5


@pytest.mark.parametrize("gone", ["broker", "controller"])
def test_a_node_tells_what_belongs_to_its_roles(gone: str) -> None:
    node = PretendedNode()
    setattr(node, gone, None)
    found = families(node)
    assert ("kafka_server_kafkaserver_brokerstate" in found) == (gone == "controller")
    active = "kafka_controller_kafkacontroller_activecontrollercount"
    assert (active in found) == (gone == "broker")
    assert "process_resident_memory_bytes" in found


def test_a_page_cannot_tell_what_is_not_in_the_table() -> None:
    with pytest.raises(KeyError):
        Page().add("tidelog_made_up", 1)


def test_labels_are_escaped() -> None:
    assert labels(("a", 'x"y\\z\nw'), ("b", 3)) == 'a="x\\"y\\\\z\\nw",b="3"'


# --- what a scrape costs ----------------------------------------------------------------------


def slices(node: PretendedNode) -> tuple[int, list[int]]:
    """How many samples the page has, and how many were added in each turn of the loop."""
    page = Page()
    counts = [0]
    for _ in collector(node).fill(page, 0.0):
        counts.append(page.count)
    counts.append(page.count)
    return page.count, [later - before for before, later in pairwise(counts)]


def test_a_large_node_is_told_in_slices() -> None:
    roles = ("leader", "follower", "follower")
    held = [replica(f"topic-{n // 50}", n % 50, roles[n % 3]) for n in range(2_000)]
    total, added = slices(PretendedNode(held=held))
    small, _ = slices(PretendedNode(held=held[:50]))
    per_slice = collecting.REPLICAS_PER_SLICE
    assert 20_000 > total > 2_000 * 5
    assert len(added) >= 2_000 / per_slice
    assert max(added) <= per_slice * 20
    # Nothing but the replicas themselves grows with their number.
    assert (total - small) / (2_000 - 50) <= 9.5


def test_the_loop_gets_a_turn_in_every_slice() -> None:
    turns = 0

    async def scenario() -> None:
        nonlocal turns

        async def count() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(count())
        await collector(PretendedNode(held=[replica("t", n) for n in range(500)])).page(0.0)
        other.cancel()

    asyncio.run(scenario())
    assert turns >= 500 / collecting.REPLICAS_PER_SLICE


# --- pieces -----------------------------------------------------------------------------------


def test_quantiles_are_of_the_last_minutes() -> None:
    recent, spread = Recent(), Spread((1.0, 2.0))
    spread.observe(0.5)
    assert recent.counts("a", spread, 0.0) == [1, 0, 0]
    spread.observe(1.5)
    assert recent.counts("a", spread, 59.0) == [1, 1, 0]
    assert recent.counts("a", spread, 60.0) == [0, 1, 0]
    assert recent.counts("a", spread, 119.0) == [0, 1, 0]
    spread.observe(9.0)
    assert recent.counts("a", spread, 120.0) == [0, 0, 1]
    assert recent.counts("b", spread, 120.0) == [1, 1, 1]


def test_lateness_of_the_loop_is_noticed() -> None:
    async def scenario(world: object) -> tuple[list[int], float]:
        lag = LoopLag()
        lag.start()
        await asyncio.sleep(1.1)
        lag.stop()
        await asyncio.sleep(1.0)
        return lag.lateness_ms.counts, lag.max_ms

    counts, largest = run_simulation(scenario, seed=1)
    assert sum(counts) == 4
    assert largest < 1.0


def test_the_process_is_told_as_the_system_sees_it() -> None:
    told = dict(process_samples())
    assert told.keys() == {name for name in METRICS if name.startswith("process_")}
    assert 10 << 20 < told["process_resident_memory_bytes"] < 10 << 30
    assert told["process_open_fds"] >= 3
    assert told["process_start_time_seconds"] > 1_700_000_000
