"""Fills a page from a node, slice by slice, so that the event loop gets its turns in between.

A generator that yields where others may run. One slice looks at so many replicas or groups as take
about a millisecond.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import islice
from typing import Final

from tidelog.broker.metrics.facts import BrokerView, ControllerView, NodeView, ReplicaFacts
from tidelog.broker.metrics.loop_lag import LoopLag
from tidelog.broker.metrics.page import Page, labels
from tidelog.broker.metrics.process_facts import collections, process_samples
from tidelog.broker.metrics.recent import Recent
from tidelog.broker.metrics.state_changes import StateChanges
from tidelog.controller.metadata.records import LEADERLESS
from tidelog.kernel.errors import ErrorCode
from tidelog.replication.meters import TopicMeter

REPLICAS_PER_SLICE: Final = 50
GROUPS_PER_SLICE: Final = 20
MAX_GROUPS: Final = 1_000
"""Of which a page tells; the others are counted."""

_TOPIC_COUNTS: Final = (
    ("messagesin", "messages_in"),
    ("bytesin", "bytes_in"),
    ("bytesout", "bytes_out"),
    ("bytesrejected", "bytes_rejected"),
    ("totalproducerequests", "produce_requests"),
    ("failedproducerequests", "failed_produce_requests"),
    ("totalfetchrequests", "fetch_requests"),
    ("failedfetchrequests", "failed_fetch_requests"),
)
_GROUP_STATES: Final = {
    "empty": "numgroupsempty",
    "stable": "numgroupsstable",
    "preparingrebalance": "numgroupspreparingrebalance",
    "completingrebalance": "numgroupscompletingrebalance",
}
_PRODUCE: Final = "Produce"
_R: Final = "kafka_server_replicamanager_"
_B: Final = "kafka_server_brokertopicmetrics_"
_N: Final = "kafka_network_requestmetrics_"
_CG: Final = "kafka_coordinator_group_groupmetadatamanager_"
_K: Final = "kafka_controller_kafkacontroller_"
_Q: Final = "kafka_server_raft_metrics_"
_L: Final = "kafka_log_logcleanermanager_"


class Collector:
    """Makes pages about one node."""

    def __init__(
        self, view: NodeView, changes: StateChanges, lag: LoopLag, *, version: str
    ) -> None:
        self._view = view
        self._changes = changes
        self._lag = lag
        self._version = version
        self._recent = Recent()
        self._last_duration_s = 0.0

    async def page(self, now_s: float) -> bytes:
        """The text. ``now_s`` is the time of a clock that never goes back."""
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        page = Page()
        for _ in self.fill(page, now_s):
            await asyncio.sleep(0)
        blocks: list[bytes] = []
        for block in page.blocks():
            blocks.append(block)
            if len(block) > 1 << 16:
                await asyncio.sleep(0)
        self._last_duration_s = loop.time() - began_s
        return b"".join(blocks)

    def fill(self, page: Page, now_s: float) -> Iterator[None]:
        view = self._view
        self._add_node(page)
        broker, controller = view.broker, view.controller
        if broker is not None:
            self._add_broker(page, broker, now_s)
            yield
            yield from self._add_replicas(page, broker)
            self._add_topics(page, broker)
            yield
            yield from self._add_groups(page, broker)
        if controller is not None:
            self._add_controller(page, controller)
            self._add_quorum(page, controller)
        yield

    # --- the node ----------------------------------------------------------------------

    def _add_node(self, page: Page) -> None:
        view, lag = self._view, self._lag
        told = labels(
            ("version", self._version), ("node_id", view.node_id), ("roles", "+".join(view.roles))
        )
        page.add("tidelog_build_info", 1, told)
        page.add("tidelog_node_ready", int(view.readiness().is_ready))
        page.add_seconds("tidelog_event_loop_lag_seconds", lag.lateness_ms)
        page.add("tidelog_event_loop_lag_max_seconds", lag.max_ms / 1000)
        for name in (
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ):
            page.add(name, lag.idle_share)
        page.add("tidelog_scrape_duration_seconds", self._last_duration_s)
        for name, value in process_samples():
            page.add(name, value)
        for generation, count in collections():
            page.add("python_gc_collections_total", count, labels(("generation", generation)))
        if view.sync_durations_ms is not None:
            page.add_seconds("tidelog_fsync_duration_seconds", view.sync_durations_ms)

    # --- the broker --------------------------------------------------------------------

    def _add_broker(self, page: Page, broker: BrokerView, now_s: float) -> None:
        page.add("kafka_server_kafkaserver_brokerstate", broker.state)
        offset = "kafka_server_broker_metadata_metrics_last_applied_record_offset"
        page.add(offset, broker.metadata_offset)
        page.add("kafka_server_socket_server_metrics_connection_count", broker.connections)
        page.add(_R + "isrshrinks_total", self._changes.isr_shrinks)
        page.add(_R + "isrexpands_total", self._changes.isr_expands)
        for kind, count in sorted(self._changes.counts.items()):
            page.add("tidelog_partition_state_changes_total", count, labels(("change", kind)))
        flushes = broker.flush_durations_ms
        page.add_seconds("tidelog_flush_duration_seconds", flushes)
        flush_times = "kafka_log_logflushstats_logflushrateandtimems"
        page.add_quantiles(flush_times, flushes, self._recent.counts(flush_times, flushes, now_s))
        for meter in broker.requests:
            told = labels(("request", meter.label))
            spread = meter.durations_ms
            page.add(_N + "requests_total", spread.count, told)
            page.add("tidelog_request_bytes_total", meter.request_bytes, told)
            page.add_seconds("tidelog_request_duration_seconds", spread, told)
            recent = self._recent.counts(meter.label, spread, now_s)
            page.add_quantiles(_N + "totaltimems", spread, recent, told)
        for (request, error), count in sorted(broker.requests.errors.items()):
            page.add(_N + "errors_total", count, labels(("request", request), ("error", error)))
        self._add_directories(page, broker)
        self._add_cleaner(page, broker)

    def _add_cleaner(self, page: Page, broker: BrokerView) -> None:
        facts = broker.cleaning
        page.add("tidelog_cleaner_passes_total", facts.passes)
        page.add("tidelog_cleaner_read_bytes_total", facts.bytes_read)
        page.add("tidelog_cleaner_written_bytes_total", facts.bytes_written)
        page.add("tidelog_cleaner_records_dropped_total", facts.records_dropped)
        page.add(_L + "uncleanable_partitions_count", facts.uncleanable)
        if facts.idle_ms is not None:
            page.add(_L + "time_since_last_run_ms", facts.idle_ms)
        for node, count in sorted(facts.waits_for.items()):
            page.add("tidelog_cleaner_waits_for", count, labels(("broker", str(node))))

    def _add_directories(self, page: Page, broker: BrokerView) -> None:
        directories = broker.directories()
        offline = sum(one.failure is not None for one in directories)
        page.add("kafka_log_logmanager_offlinelogdirectorycount", offline)
        for one in directories:
            told = labels(("directory", one.path))
            page.add("tidelog_log_directory_online", int(one.failure is None), told)
            if one.failure is None:
                page.add("tidelog_log_directory_free_bytes", one.free_bytes, told)
                page.add("tidelog_log_directory_total_bytes", one.total_bytes, told)

    def _add_topics(self, page: Page, broker: BrokerView) -> None:
        total = broker.topics.sum()
        page.add(_B + "replicationbytesin_total", total.replication_bytes_in)
        page.add(_B + "replicationbytesout_total", total.replication_bytes_out)
        page.add(_R + "failedisrupdates_total", total.failed_isr_updates)
        damaged = broker.requests.errors[_PRODUCE, ErrorCode.CORRUPT_MESSAGE.name]
        page.add(_B + "invalidmessagecrcrecords_total", damaged)
        told: list[tuple[str, TopicMeter]] = [
            (labels(("topic", topic)), meter) for topic, meter in broker.topics
        ]
        for name, field in _TOPIC_COUNTS:
            page.add(f"{_B}{name}_total", getattr(total, field))
            rows = [(labelled, int(getattr(meter, field))) for labelled, meter in told]
            page.add_rows(f"{_B}{name}_total", rows)

    # --- replicas ----------------------------------------------------------------------

    def _add_replicas(self, page: Page, broker: BrokerView) -> Iterator[None]:
        counts: Counter[str] = Counter()
        follower_lags: defaultdict[int, int] = defaultdict(int)
        largest_lag = 0
        replicas = broker.replicas()
        while some := list(islice(replicas, REPLICAS_PER_SLICE)):
            _add_logs(page, some)
            for one in some:
                _count(counts, one)
                largest_lag = max(largest_lag, one.lag)
                for follower in one.followers:
                    lag = max(follower_lags[follower.node_id], follower.lag)
                    follower_lags[follower.node_id] = lag
            yield
        for name in ("partitioncount", "leadercount", "underreplicatedpartitions",
                     "underminisrpartitioncount", "atminisrpartitioncount",
                     "offlinereplicacount", "reassigningpartitions",
                     "partitionswithlatetransactionscount"):  # fmt: skip
            page.add(_R + name, counts[name])
        page.add("kafka_server_replicafetchermanager_maxlag", largest_lag)
        rows = [(labels(("follower", node)), lag) for node, lag in sorted(follower_lags.items())]
        page.add_rows("tidelog_replication_follower_max_lag", rows)
        purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
        page.add(purgatory, counts["waiting"], labels(("delayedOperation", "Produce")))
        page.add(purgatory, broker.waiting_fetches, labels(("delayedOperation", "Fetch")))

    # --- groups ------------------------------------------------------------------------

    def _add_groups(self, page: Page, broker: BrokerView) -> Iterator[None]:
        states: Counter[str] = Counter()
        offsets = seen = 0
        groups = broker.groups()
        while some := list(islice(groups, GROUPS_PER_SLICE)):
            for group in some:
                seen += 1
                states[group.state.lower()] += 1
                offsets += len(group.offsets)
                if seen > MAX_GROUPS:
                    continue
                name = labels(("consumergroup", group.group_id))
                page.add("kafka_consumergroup_members", group.members, name)
                for one in group.offsets:
                    told = f"{name},{labels(('topic', one.topic), ('partition', one.partition))}"
                    page.add("kafka_consumergroup_current_offset", one.offset, told)
                    if one.lag is not None:
                        page.add("kafka_consumergroup_lag", one.lag, told)
            yield
        page.add(_CG + "numgroups", seen)
        page.add(_CG + "numoffsets", offsets)
        for state, metric in _GROUP_STATES.items():
            page.add(_CG + metric, states[state])
        page.add("tidelog_scrape_groups_left_out", max(0, seen - MAX_GROUPS))

    # --- the controller ----------------------------------------------------------------

    def _add_controller(self, page: Page, controller: ControllerView) -> None:
        image, meters = controller.image, controller.meters
        indexes = image.topics.indexes
        fenced = sum(one.fenced for one in image.brokers.values())
        page.add(_K + "activecontrollercount", int(controller.is_active))
        page.add(_K + "offlinepartitionscount", len(indexes.leading.get(LEADERLESS, ())))
        page.add(_K + "preferredreplicaimbalancecount", len(indexes.unbalanced))
        page.add(_K + "globaltopiccount", len(image.topics.by_id))
        partitions = sum(len(topic.partitions) for topic in image.topics.by_id.values())
        page.add(_K + "globalpartitioncount", partitions)
        page.add(_K + "activebrokercount", len(image.brokers) - fenced)
        page.add(_K + "fencedbrokercount", fenced)
        page.add(_K + "lastappliedrecordoffset", image.offset)
        unclean = "kafka_controller_controllerstats_uncleanleaderelections_total"
        page.add(unclean, meters.unclean_elections)
        page.add("tidelog_controller_leader_elections_total", meters.leader_elections)
        failovers = "tidelog_controller_failover_duration_seconds"
        page.add_seconds(failovers, meters.failover_durations_ms)

    def _add_quorum(self, page: Page, controller: ControllerView) -> None:
        status, meters = controller.quorum, controller.quorum_meters
        page.add("tidelog_quorum_elections_total", meters.elections)
        elections = meters.election_durations_ms
        page.add_seconds("tidelog_quorum_election_duration_seconds", elections)
        page.add_seconds("tidelog_quorum_commit_duration_seconds", meters.commit_durations_ms)
        if status is None:
            return
        page.add(_Q + "current_leader", -1 if status.leader_id is None else status.leader_id)
        page.add(_Q + "current_epoch", status.term)
        page.add(_Q + "high_watermark", status.high_watermark)
        page.add(_Q + "log_end_offset", status.log_end)
        page.add("tidelog_quorum_role", 1, labels(("role", status.role.name.lower())))
        for member in status.replicas:
            told = labels(("member", member.key.node_id))
            lag = max(0, status.log_end - member.match_end)
            page.add("tidelog_quorum_member_lag", lag, told)


def _count(counts: Counter[str], one: ReplicaFacts) -> None:
    counts["partitioncount"] += 1
    counts["offlinereplicacount"] += one.role == "offline"
    counts["waiting"] += one.waiting_produces
    if one.is_leader:
        counts["leadercount"] += 1
        counts["underreplicatedpartitions"] += one.is_under_replicated
        counts["underminisrpartitioncount"] += len(one.isr) < one.min_isr
        counts["atminisrpartitioncount"] += len(one.isr) == one.min_isr
        counts["reassigningpartitions"] += one.is_reassigning
        counts["partitionswithlatetransactionscount"] += one.has_late_transaction


def _add_logs(page: Page, replicas: list[ReplicaFacts]) -> None:
    named = [(labels(("topic", o.topic), ("partition", o.partition)), o) for o in replicas]
    led = [(name, one) for name, one in named if one.is_leader]
    add = page.add_rows
    add("kafka_log_log_size", [(n, o.size) for n, o in named])
    add("kafka_log_log_numlogsegments", [(n, o.segments) for n, o in named])
    add("kafka_log_log_logstartoffset", [(n, o.log_start) for n, o in named])
    add("kafka_log_log_logendoffset", [(n, o.log_end) for n, o in named])
    following = [(n, o.lag) for n, o in named if o.role == "follower"]
    add("kafka_server_fetcherlagmetrics_consumerlag", following)
    partition = "kafka_cluster_partition_"
    add(partition + "underreplicated", [(n, int(o.is_under_replicated)) for n, o in led])
    add(partition + "underminisr", [(n, int(len(o.isr) < o.min_isr)) for n, o in led])
    add(partition + "insyncreplicascount", [(n, len(o.isr)) for n, o in led])
    add(partition + "replicascount", [(n, len(o.replicas)) for n, o in led])
    stable_lags = [(n, o.high_watermark - o.last_stable_offset) for n, o in led]
    add(partition + "laststableoffsetlag", stable_lags)
    add("kafka_topic_partition_current_offset", [(n, o.high_watermark) for n, o in led])
    add("kafka_topic_partition_oldest_offset", [(n, o.log_start) for n, o in led])
    lags = [(f'{n},follower="{f.node_id}"', f.lag) for n, o in led for f in o.followers]
    add("tidelog_replication_follower_lag", lags)
