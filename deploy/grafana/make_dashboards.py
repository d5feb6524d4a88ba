"""The Grafana dashboards, made from the tables below: ``python deploy/grafana/make_dashboards.py``.

A dashboard is a row of panels, a panel a title, a unit and PromQL expressions with their legends.
The JSON in ``dashboards/`` is what this prints; tests compare both, and compare every metric that
is asked for here with the table of metrics.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

DATA_SOURCE: Final = {"type": "prometheus", "uid": "tidelog-prometheus"}
FOLDER: Final = Path(__file__).parent / "dashboards"
_COLUMNS: Final = 24
_PER_ROW: Final = 3
_HEIGHT: Final = 8

_B: Final = "kafka_server_brokertopicmetrics_"
_R: Final = "kafka_server_replicamanager_"
_K: Final = "kafka_controller_kafkacontroller_"
_Q: Final = "kafka_server_raft_metrics_"
_CG: Final = "kafka_coordinator_group_groupmetadatamanager_"
_P: Final = "kafka_cluster_partition_"


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    """Expression and legend."""
    kind: str = "timeseries"


@dataclass(frozen=True, slots=True)
class Dashboard:
    name: str
    title: str
    panels: tuple[Panel, ...]
    variables: tuple[tuple[str, str], ...] = ()
    """Name, and the expression of its values."""


def one(title: str, unit: str, expression: str, legend: str = "{{instance}}") -> Panel:
    return Panel(title, unit, ((expression, legend),))


def number(title: str, expression: str, unit: str = "short") -> Panel:
    return Panel(title, unit, ((expression, ""),), "stat")


def quantile(share: float, metric: str, *labels: str, where: str = "") -> str:
    by = ", ".join(("le", *labels))
    return f"histogram_quantile({share}, sum by ({by}) (rate({metric}_bucket{where}[1m])))"


def rate(metric: str, where: str = "") -> str:
    return f"rate({metric}{where}[1m])"


def summed(metric: str, where: str = "", by: str = "") -> str:
    """The rate of a counter over all nodes, by a label if one is given."""
    return f"sum by ({by}) ({rate(metric, where)})" if by else f"sum({rate(metric, where)})"


_ALL_TOPICS: Final = '{topic=""}'
_TOPIC: Final = '{topic=~"$topic"}'
_GROUP: Final = '{consumergroup=~"$group"}'
_NODE: Final = '{instance="$instance"}'


CLUSTER: Final = Dashboard("cluster", "Tidelog: cluster", (
    number("Nodes that answer", 'sum(up{job="tidelog"})'),
    number("Brokers in service", f"max({_K}activebrokercount)"),
    number("Active controllers", f"sum({_K}activecontrollercount)"),
    number("Partitions without a leader", f"max({_K}offlinepartitionscount)"),
    number("Under-replicated partitions", f"sum({_R}underreplicatedpartitions)"),
    number("Partitions below min.insync.replicas", f"sum({_R}underminisrpartitioncount)"),
    one("Records in", "short", summed(_B + "messagesin_total", _ALL_TOPICS), "records/s"),
    Panel("Bytes in and out", "Bps", (
        (summed(_B + "bytesin_total", _ALL_TOPICS), "in"),
        (summed(_B + "bytesout_total", _ALL_TOPICS), "out"),
    )),
    one("Requests", "reqps",
        summed("kafka_network_requestmetrics_requests_total", by="request"),
        "{{request}}"),
    Panel("Produce, latency", "s", (
        (quantile(0.5, "tidelog_request_duration_seconds", where='{request="Produce"}'), "p50"),
        (quantile(0.99, "tidelog_request_duration_seconds", where='{request="Produce"}'), "p99"),
    )),
    Panel("Topics and partitions", "short", (
        (f"max({_K}globaltopiccount)", "topics"),
        (f"max({_K}globalpartitioncount)", "partitions"),
    )),
    one("Room on disks", "percentunit",
        "tidelog_log_directory_free_bytes / tidelog_log_directory_total_bytes",
        "{{instance}} {{directory}}"),
))  # fmt: skip

TOPICS: Final = Dashboard("topics", "Tidelog: topics", (
    one("Records in", "short", summed(_B + "messagesin_total", _TOPIC, "topic"), "{{topic}}"),
    one("Bytes in", "Bps", summed(_B + "bytesin_total", _TOPIC, "topic"), "{{topic}}"),
    one("Bytes out", "Bps", summed(_B + "bytesout_total", _TOPIC, "topic"), "{{topic}}"),
    one("Produce requests", "reqps",
        summed(_B + "totalproducerequests_total", _TOPIC, "topic"), "{{topic}}"),
    one("Refused Produce requests", "reqps",
        summed(_B + "failedproducerequests_total", _TOPIC, "topic"), "{{topic}}"),
    one("Refused Fetch requests", "reqps",
        summed(_B + "failedfetchrequests_total", _TOPIC, "topic"), "{{topic}}"),
    one("Bytes stored, all replicas", "bytes",
        f"sum by (topic) (kafka_log_log_size{_TOPIC})", "{{topic}}"),
    one("Segments", "short", f"sum by (topic) (kafka_log_log_numlogsegments{_TOPIC})", "{{topic}}"),
    one("Records kept", "short",
        f"sum by (topic) (kafka_topic_partition_current_offset{_TOPIC}"
        f" - kafka_topic_partition_oldest_offset{_TOPIC})", "{{topic}}"),
    one("Held back by open transactions", "short",
        f"max by (topic) ({_P}laststableoffsetlag{_TOPIC})", "{{topic}}"),
), (("topic", "label_values(kafka_log_log_size, topic)"),))  # fmt: skip

REPLICATION: Final = Dashboard("replication", "Tidelog: replication", (
    one("Under-replicated partitions, by leader", "short", f"{_R}underreplicatedpartitions"),
    one("At min.insync.replicas", "short", f"{_R}atminisrpartitioncount"),
    one("Below min.insync.replicas", "short", f"{_R}underminisrpartitioncount"),
    Panel("ISR changes", "short", (
        (summed(_R + "isrshrinks_total"), "shrinks/s"),
        (summed(_R + "isrexpands_total"), "expands/s"),
        (summed(_R + "failedisrupdates_total"), "failed/s"),
    )),
    one("Followers behind, records", "short",
        "max by (follower) (tidelog_replication_follower_max_lag)", "follower {{follower}}"),
    one("Largest lag of a replica", "short", "kafka_server_replicafetchermanager_maxlag"),
    one("Bytes fetched from leaders", "Bps", rate(_B + "replicationbytesin_total")),
    one("Bytes sent to followers", "Bps", rate(_B + "replicationbytesout_total")),
    one("State changes", "short",
        summed("tidelog_partition_state_changes_total", by="change"), "{{change}}"),
    one("Offline replicas", "short", f"{_R}offlinereplicacount"),
    one("Partitions being reassigned", "short", f"{_R}reassigningpartitions"),
    one("Leaders", "short", f"{_R}leadercount"),
))  # fmt: skip

GROUPS: Final = Dashboard("groups", "Tidelog: groups and lag", (
    one("Lag by group", "short", f"sum by (consumergroup) (kafka_consumergroup_lag{_GROUP})",
        "{{consumergroup}}"),
    one("Lag by group and topic", "short",
        f"sum by (consumergroup, topic) (kafka_consumergroup_lag{_GROUP})",
        "{{consumergroup}} {{topic}}"),
    one("Largest lag of a partition", "short",
        f"topk(10, kafka_consumergroup_lag{_GROUP})",
        "{{consumergroup}} {{topic}}-{{partition}}"),
    one("Records committed", "short",
        f"sum by (consumergroup) (deriv(kafka_consumergroup_current_offset{_GROUP}[1m]))",
        "{{consumergroup}}"),
    one("Members", "short", f"sum by (consumergroup) (kafka_consumergroup_members{_GROUP})",
        "{{consumergroup}}"),
    Panel("Groups by state", "short", (
        (f"sum({_CG}numgroupsstable)", "stable"),
        (f"sum({_CG}numgroupsempty)", "empty"),
        (f"sum({_CG}numgroupspreparingrebalance)", "preparing"),
        (f"sum({_CG}numgroupscompletingrebalance)", "completing"),
    )),
    one("Groups by coordinator", "short", f"{_CG}numgroups"),
    one("Committed offsets", "short", f"{_CG}numoffsets"),
), (("group", "label_values(kafka_consumergroup_members, consumergroup)"),))  # fmt: skip

QUORUM: Final = Dashboard("quorum", "Tidelog: quorum and controller", (
    number("Leader of the quorum", f"max({_Q}current_leader)"),
    number("Term", f"max({_Q}current_epoch)"),
    number("Fenced brokers", f"max({_K}fencedbrokercount)"),
    one("Roles", "short", "tidelog_quorum_role == 1", "{{instance}} {{role}}"),
    one("Committed records", "short", f"{_Q}high_watermark"),
    one("Members behind, records", "short", "tidelog_quorum_member_lag", "member {{member}}"),
    Panel("Time to commit", "s", (
        (quantile(0.5, "tidelog_quorum_commit_duration_seconds"), "p50"),
        (quantile(0.99, "tidelog_quorum_commit_duration_seconds"), "p99"),
    )),
    one("Elections of the quorum", "short", "increase(tidelog_quorum_elections_total[5m])"),
    one("Time without a leader, p99", "s",
        quantile(0.99, "tidelog_quorum_election_duration_seconds"), "p99"),
    Panel("Elections of partition leaders", "short", (
        (summed("tidelog_controller_leader_elections_total"), "leaders/s"),
        (summed("kafka_controller_controllerstats_uncleanleaderelections_total"), "unclean/s"),
    )),
    one("Failover, p99", "s",
        quantile(0.99, "tidelog_controller_failover_duration_seconds"), "p99"),
    one("Not led by the preferred replica", "short",
        f"max({_K}preferredreplicaimbalancecount)", "partitions"),
))  # fmt: skip

NODE: Final = Dashboard("node", "Tidelog: one node", (
    number("Ready", f"tidelog_node_ready{_NODE}"),
    number("State", f"kafka_server_kafkaserver_brokerstate{_NODE}"),
    number("Connections", f"kafka_server_socket_server_metrics_connection_count{_NODE}"),
    one("Processor", "percentunit", rate("process_cpu_seconds_total", _NODE)),
    one("Memory", "bytes", f"process_resident_memory_bytes{_NODE}"),
    Panel("Open files", "short", (
        (f"process_open_fds{_NODE}", "open"), (f"process_max_fds{_NODE}", "allowed"),
    )),
    Panel("Event-loop lag", "s", (
        (quantile(0.99, "tidelog_event_loop_lag_seconds", where=_NODE), "p99"),
        (f"tidelog_event_loop_lag_max_seconds{_NODE}", "largest"),
    )),
    one("Requests, p99", "s",
        quantile(0.99, "tidelog_request_duration_seconds", "request", where=_NODE), "{{request}}"),
    one("Errors", "short",
        summed("kafka_network_requestmetrics_errors_total", _NODE, "request, error"),
        "{{request}} {{error}}"),
    one("Waiting requests", "short",
        f"kafka_server_delayedoperationpurgatory_purgatorysize{_NODE}", "{{delayedOperation}}"),
    one("Flush, p99", "s", quantile(0.99, "tidelog_flush_duration_seconds", where=_NODE), "p99"),
    one("fsync, p99", "s", quantile(0.99, "tidelog_fsync_duration_seconds", where=_NODE), "p99"),
    one("Replicas and leaders", "short", f"{_R}partitioncount{_NODE}", "replicas"),
    one("Idle share of the event loop", "percentunit",
        f"kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent{_NODE}"),
    one("Making the page of metrics", "s", f"tidelog_scrape_duration_seconds{_NODE}"),
), (("instance", "label_values(tidelog_build_info, instance)"),))  # fmt: skip

DASHBOARDS: Final = (CLUSTER, TOPICS, REPLICATION, GROUPS, QUORUM, NODE)


def panel_json(panel: Panel, position: int) -> dict[str, Any]:
    width = _COLUMNS // _PER_ROW
    return {
        "id": position + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": DATA_SOURCE,
        "gridPos": {
            "x": position % _PER_ROW * width,
            "y": position // _PER_ROW * _HEIGHT,
            "w": width,
            "h": _HEIGHT,
        },
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": DATA_SOURCE,
                "expr": expression,
                "legendFormat": legend,
            }
            for place, (expression, legend) in enumerate(panel.queries)
        ],
    }


def variable_json(name: str, query: str, *, several: bool) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": DATA_SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": several,
        "includeAll": several,
        "allValue": ".+" if several else None,
    }


def dashboard_json(dashboard: Dashboard) -> dict[str, Any]:
    return {
        "uid": f"tidelog-{dashboard.name}",
        "title": dashboard.title,
        "tags": ["tidelog"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {
            "list": [
                variable_json(name, query, several=name != "instance")
                for name, query in dashboard.variables
            ]
        },
        "links": [
            {"type": "dashboards", "tags": ["tidelog"], "title": "Tidelog", "asDropdown": True}
        ],
        "panels": [panel_json(panel, place) for place, panel in enumerate(dashboard.panels)],
    }


def text_of(dashboard: Dashboard) -> str:
    return json.dumps(dashboard_json(dashboard), indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    for dashboard in DASHBOARDS:
        (FOLDER / f"{dashboard.name}.json").write_text(text_of(dashboard), encoding="utf-8")


if __name__ == "__main__":
    main()
