"""The table of metrics: everything a node tells at ``/metrics`` is one row here.

Names that begin with ``kafka_`` are those under which dashboards for Apache Kafka look for the
same thing (what the JMX exporter's sample rules make of Kafka's names, and for groups those of the
lag exporters); the rest is Tidelog's own. Labels are bounded: topics, partitions, groups, brokers,
APIs and error codes, and never anything else that a client chooses.

docs/METRICS.md is made from this table, and a page that tells what is not in it cannot be made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final


class Kind(Enum):
    """As Prometheus names them."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    SUMMARY = "summary"


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    """Labels that some samples have; one without is the sum over all."""


_C: Final = Kind.COUNTER
_G: Final = Kind.GAUGE
_H: Final = Kind.HISTOGRAM
_S: Final = Kind.SUMMARY
_TP: Final = ("topic", "partition")
_GROUP_TP: Final = ("consumergroup", "topic", "partition")
_R: Final = "kafka_server_replicamanager_"
_B: Final = "kafka_server_brokertopicmetrics_"
_N: Final = "kafka_network_requestmetrics_"
_K: Final = "kafka_controller_kafkacontroller_"
_P: Final = "kafka_cluster_partition_"
_CG: Final = "kafka_coordinator_group_groupmetadatamanager_"
_Q: Final = "kafka_server_raft_metrics_"
_L: Final = "kafka_log_logcleanermanager_"

# fmt: off
_NODE: Final = (
    Metric("tidelog_build_info", _G, "Always 1; what runs here.", ("version", "node_id", "roles")),
    Metric("kafka_server_kafkaserver_brokerstate", _G,
           "1 starting, 2 recovering, 3 running, 6 handing over, 7 shutting down."),
    Metric("tidelog_node_ready", _G, "1 if /readyz says that the node is ready."),
    Metric("kafka_server_broker_metadata_metrics_last_applied_record_offset", _G,
           "The last record of the metadata log that this broker has applied."),
    Metric("kafka_server_socket_server_metrics_connection_count", _G, "Connections of clients."),
    Metric("tidelog_event_loop_lag_seconds", _H,
           "How late the event loop ran a timer; everything else was as late."),
    Metric("tidelog_event_loop_lag_max_seconds", _G,
           "The largest such lateness of the last one to two minutes."),
    Metric("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", _G,
           "The share of time, 0 to 1, in which the event loop's thread used no processor."),
    Metric("kafka_network_socketserver_networkprocessoravgidle_percent", _G,
           "The same: one thread does both."),
    Metric("tidelog_scrape_duration_seconds", _G, "How long making the last page took."),
    Metric("tidelog_scrape_groups_left_out", _G,
           "Groups that the page does not tell of because there are too many."),
)

_PROCESS: Final = (
    Metric("process_cpu_seconds_total", _C, "Processor time used, in user and system mode."),
    Metric("process_resident_memory_bytes", _G, "Memory in use."),
    Metric("process_virtual_memory_bytes", _G, "Address space in use."),
    Metric("process_start_time_seconds", _G, "When the process started, since 1970."),
    Metric("process_open_fds", _G, "Open files and sockets."),
    Metric("process_max_fds", _G, "How many there may be."),
    Metric("process_threads", _G, "Threads."),
    Metric("python_gc_collections_total", _C, "Runs of the garbage collector.", ("generation",)),
)

_REPLICAS: Final = (
    Metric(_R + "partitioncount", _G, "Replicas on this broker."),
    Metric(_R + "leadercount", _G, "Partitions that this broker leads."),
    Metric(_R + "underreplicatedpartitions", _G,
           "Partitions led here with replicas that are not in sync."),
    Metric(_R + "underminisrpartitioncount", _G,
           "Partitions led here with fewer replicas in sync than min.insync.replicas."),
    Metric(_R + "atminisrpartitioncount", _G,
           "Partitions led here with exactly min.insync.replicas in sync."),
    Metric(_R + "offlinereplicacount", _G, "Replicas whose log directory failed."),
    Metric(_R + "reassigningpartitions", _G, "Partitions led here that are being reassigned."),
    Metric(_R + "partitionswithlatetransactionscount", _G,
           "Partitions led here with a transaction open for longer than transaction.max.timeout.ms"
           " and five minutes; `tidelog txn find-hanging` names it."),
    Metric(_R + "isrshrinks_total", _C, "Times an ISR led from here became smaller."),
    Metric(_R + "isrexpands_total", _C, "Times an ISR led from here became larger."),
    Metric(_R + "failedisrupdates_total", _C,
           "Changes of an ISR that the controller did not carry out."),
    Metric("tidelog_partition_state_changes_total", _C,
           "Changes of replicas held here: leader, epoch, ISR or assignment.", ("change",)),
    Metric("kafka_server_replicafetchermanager_maxlag", _G,
           "The most records that a replica here is behind its leader."),
    Metric("kafka_server_fetcherlagmetrics_consumerlag", _G,
           "Records that a replica here is behind its leader.", _TP),
    Metric("tidelog_replication_follower_lag", _G,
           "Records that a follower has not flushed of a partition led here.",
           ("topic", "partition", "follower")),
    Metric("tidelog_replication_follower_max_lag", _G,
           "The most records that a follower is behind, over all partitions led here.",
           ("follower",)),
    Metric("kafka_server_delayedoperationpurgatory_purgatorysize", _G,
           "Requests that wait: Produce for replicas, Fetch for records.", ("delayedOperation",)),
)

_TRAFFIC: Final = (
    Metric(_B + "messagesin_total", _C, "Records produced.", optional=("topic",)),
    Metric(_B + "bytesin_total", _C, "Bytes of batches produced.", optional=("topic",)),
    Metric(_B + "bytesout_total", _C, "Bytes of batches sent to consumers.", optional=("topic",)),
    Metric(_B + "bytesrejected_total", _C, "Bytes of batches refused.", optional=("topic",)),
    Metric(_B + "replicationbytesin_total", _C, "Bytes fetched from leaders."),
    Metric(_B + "replicationbytesout_total", _C, "Bytes sent to followers."),
    Metric(_B + "totalproducerequests_total", _C,
           "Partitions of Produce requests.", optional=("topic",)),
    Metric(_B + "failedproducerequests_total", _C,
           "Those of them that were refused.", optional=("topic",)),
    Metric(_B + "totalfetchrequests_total", _C,
           "Partitions read for consumers.", optional=("topic",)),
    Metric(_B + "failedfetchrequests_total", _C,
           "Those of them that were refused.", optional=("topic",)),
    Metric(_B + "invalidmessagecrcrecords_total", _C,
           "Batches of Produce refused because they are damaged."),
    Metric(_N + "requests_total", _C, "Requests answered.", ("request",)),
    Metric(_N + "errors_total", _C,
           "Errors in answers to Produce and FetchConsumer, by partition.", ("request", "error")),
    Metric(_N + "totaltimems", _S,
           "Milliseconds from the request's last byte to the answer's, quantiles of the last one"
           " to two minutes.", ("request",)),
    Metric("tidelog_request_duration_seconds", _H,
           "From the request's last byte to the answer's.", ("request",)),
    Metric("tidelog_request_bytes_total", _C, "Bytes of requests.", ("request",)),
)

_LOGS: Final = (
    Metric("kafka_log_log_size", _G, "Bytes of a log.", _TP),
    Metric("kafka_log_log_numlogsegments", _G, "Segments of a log.", _TP),
    Metric("kafka_log_log_logstartoffset", _G, "The first offset of a log.", _TP),
    Metric("kafka_log_log_logendoffset", _G, "The offset behind the last record of a log.", _TP),
    Metric("kafka_log_logflushstats_logflushrateandtimems", _S,
           "Milliseconds that flushing a log took, quantiles of the last one to two minutes."),
    Metric("tidelog_flush_duration_seconds", _H,
           "From when a log's flush begins until it counts; several files, off the event loop."),
    Metric("tidelog_fsync_duration_seconds", _H, "A single fdatasync of any file."),
    Metric("kafka_log_logmanager_offlinelogdirectorycount", _G, "Log directories that failed."),
    Metric("tidelog_log_directory_online", _G, "0 for one that failed.", ("directory",)),
    Metric("tidelog_log_directory_free_bytes", _G, "Room on its file system.", ("directory",)),
    Metric("tidelog_log_directory_total_bytes", _G, "Size of its file system.", ("directory",)),
    Metric(_P + "underreplicated", _G, "1 if replicas of it are not in sync.", _TP),
    Metric(_P + "underminisr", _G, "1 if too few of its replicas are in sync.", _TP),
    Metric(_P + "insyncreplicascount", _G, "Replicas in sync of a partition led here.", _TP),
    Metric(_P + "replicascount", _G, "Replicas of a partition led here.", _TP),
    Metric(_P + "laststableoffsetlag", _G,
           "Records between the last stable offset and the high watermark.", _TP),
    Metric("kafka_topic_partition_current_offset", _G,
           "The high watermark of a partition led here.", _TP),
    Metric("kafka_topic_partition_oldest_offset", _G,
           "The first offset of a partition led here.", _TP),
)

_CLEANER: Final = (
    Metric("tidelog_cleaner_passes_total", _C, "Passes of the cleaner over a log."),
    Metric("tidelog_cleaner_read_bytes_total", _C, "Bytes that the cleaner read."),
    Metric("tidelog_cleaner_written_bytes_total", _C, "Bytes that the cleaner wrote."),
    Metric("tidelog_cleaner_records_dropped_total", _C, "Records that compaction removed."),
    Metric(_L + "uncleanable_partitions_count", _G, "Logs that the cleaner gave up."),
    Metric(_L + "time_since_last_run_ms", _G,
           "Since a pass over any log ended; not told before the first."),
    Metric("tidelog_cleaner_waits_for", _G,
           "Partitions led here whose tombstones wait for a broker to compact.", ("broker",)),
)

_GROUPS: Final = (
    Metric(_CG + "numgroups", _G, "Groups coordinated here."),
    Metric(_CG + "numgroupsempty", _G, "Those without members."),
    Metric(_CG + "numgroupsstable", _G, "Those at rest."),
    Metric(_CG + "numgroupspreparingrebalance", _G, "Those that wait for members to join."),
    Metric(_CG + "numgroupscompletingrebalance", _G, "Those that wait for an assignment."),
    Metric(_CG + "numoffsets", _G, "Offsets committed by them."),
    Metric("kafka_consumergroup_members", _G, "Members of a group.", ("consumergroup",)),
    Metric("kafka_consumergroup_current_offset", _G, "The offset a group committed.", _GROUP_TP),
    Metric("kafka_consumergroup_lag", _G,
           "Records below the high watermark that a group has not committed; only for partitions"
           " of which its coordinator holds a replica.", _GROUP_TP),
)

_CONTROLLER: Final = (
    Metric(_K + "activecontrollercount", _G, "1 on the active controller, 0 on the others."),
    Metric(_K + "offlinepartitionscount", _G, "Partitions without a leader."),
    Metric(_K + "preferredreplicaimbalancecount", _G,
           "Partitions that are not led by their preferred replica."),
    Metric(_K + "globaltopiccount", _G, "Topics of the cluster."),
    Metric(_K + "globalpartitioncount", _G, "Partitions of the cluster."),
    Metric(_K + "activebrokercount", _G, "Brokers in service."),
    Metric(_K + "fencedbrokercount", _G, "Brokers that are registered and not in service."),
    Metric(_K + "lastappliedrecordoffset", _G, "The last record that this controller applied."),
    Metric("kafka_controller_controllerstats_uncleanleaderelections_total", _C,
           "Leaders elected here that may lack acknowledged records."),
    Metric("tidelog_controller_leader_elections_total", _C, "Leaders elected here."),
    Metric("tidelog_controller_failover_duration_seconds", _H,
           "From when a broker is found lost until others lead its partitions, committed."),
    Metric(_Q + "current_leader", _G, "The leader of the metadata quorum; -1 if none is known."),
    Metric(_Q + "current_epoch", _G, "The quorum's term."),
    Metric(_Q + "high_watermark", _G, "The end of what is committed."),
    Metric(_Q + "log_end_offset", _G, "The end of this member's log."),
    Metric("tidelog_quorum_role", _G, "1 for the role that this member has.", ("role",)),
    Metric("tidelog_quorum_elections_total", _C, "Leaders that this member came to know."),
    Metric("tidelog_quorum_election_duration_seconds", _H,
           "For how long this member knew of no leader, up to an election."),
    Metric("tidelog_quorum_commit_duration_seconds", _H,
           "From proposal to commit, on the active controller."),
    Metric("tidelog_quorum_member_lag", _G,
           "Records that a member's log is behind; told by the leader.", ("member",)),
)
# fmt: on

SECTIONS: Final[Mapping[str, tuple[Metric, ...]]] = MappingProxyType(
    {
        "The node": _NODE,
        "The process": _PROCESS,
        "Replicas": _REPLICAS,
        "Traffic": _TRAFFIC,
        "Logs and partitions": _LOGS,
        "Compaction": _CLEANER,
        "Groups": _GROUPS,
        "Controller and quorum": _CONTROLLER,
    }
)
METRICS: Final[Mapping[str, Metric]] = MappingProxyType(
    {metric.name: metric for section in SECTIONS.values() for metric in section}
)
