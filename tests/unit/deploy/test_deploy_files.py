"""Compose files, alert rules and dashboards against the tables they speak of."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]

from tidelog.broker.metrics.table import METRICS, Kind
from tidelog.kernel.settings.broker_table import BROKER_SETTINGS
from tidelog.kernel.settings.load import environment_setting, load
from tidelog.testing.containers import DEFAULT_IMAGE, environment_variable

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
COMPOSE_FILES = ["docker-compose.yml", "docker-compose.controllers.yml"]
DASHBOARDS = ["cluster", "groups", "node", "quorum", "replication", "topics"]
OF_PROMETHEUS = {"up"}
WORDS = {
    "sum", "max", "min", "avg", "by", "rate", "increase", "deriv", "topk", "le",
    "histogram_quantile", "label_values",
}  # fmt: skip


def samples() -> dict[str, set[str]]:
    """Every name that a page of metrics has, and the labels that its samples may have."""
    found: dict[str, set[str]] = {name: {"job"} for name in OF_PROMETHEUS}
    for metric in METRICS.values():
        labels = {*metric.labels, *metric.optional}
        if metric.kind in (Kind.HISTOGRAM, Kind.SUMMARY):
            found[f"{metric.name}_sum"] = found[f"{metric.name}_count"] = labels
        if metric.kind is Kind.HISTOGRAM:
            found[f"{metric.name}_bucket"] = {*labels, "le"}
        else:
            found[metric.name] = labels
    return found


SAMPLES = samples()


def unknown(expression: str) -> list[str]:
    """Names of metrics that no node tells, and labels that a metric does not have."""
    plain = re.sub(r"\bby \([^)]*\)", "", re.sub(r"\[\w+\]", "", expression))
    selected = re.findall(r"([a-z_]\w*)\{([^}]*)\}", plain)
    names = set(re.findall(r"[a-z_]\w+", re.sub(r'\{[^}]*\}|"[^"]*"', "", plain))) - WORDS
    if plain.startswith("label_values("):
        names = {plain.removeprefix("label_values(").partition(",")[0]}
    wrong = sorted(name for name in names if name not in SAMPLES)
    for name, selector in selected:
        for label in re.findall(r"(\w+)\s*[=!]", selector):
            if label not in SAMPLES.get(name, set()) | {"instance", "job"}:
                wrong.append(f"{name}: {label}")
    for grouping in re.findall(r"\bby \(([^)]*)\)", expression):
        allowed = {label for name in names for label in SAMPLES.get(name, set())}
        for label in grouping.split(", "):
            if label not in allowed | {"instance", "job"}:
                wrong.append(f"by {label}")
    return wrong


def dashboard(name: str) -> dict[str, Any]:
    text = (DEPLOY / "grafana/dashboards" / f"{name}.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def rules() -> list[dict[str, Any]]:
    [group] = yaml.safe_load((DEPLOY / "prometheus/alerts.yml").read_text("utf-8"))["groups"]
    return list(group["rules"])


def expressions(name: str) -> Iterator[str]:
    shown = dashboard(name)
    for panel in shown["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in shown["templating"]["list"]:
        yield variable["query"]["query"]


# --- dashboards and alerts ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("sum(no_such_metric)", ["no_such_metric"]),
        ("rate(tidelog_fsync_duration_seconds[1m])", ["tidelog_fsync_duration_seconds"]),
        ("sum by (member) (tidelog_quorum_member_lag)", []),
        ("sum by (topic) (tidelog_quorum_member_lag)", ["by topic"]),
        ('tidelog_quorum_member_lag{topic="x"}', ["tidelog_quorum_member_lag: topic"]),
        ("label_values(no_such_metric, topic)", ["no_such_metric"]),
    ],
)
def test_what_no_node_tells_is_found(expression: str, wrong: list[str]) -> None:
    assert unknown(expression) == wrong


@pytest.mark.parametrize("name", DASHBOARDS)
def test_dashboards_ask_for_what_nodes_tell(name: str) -> None:
    found = list(expressions(name))
    assert found
    assert {expression: wrong for expression in found if (wrong := unknown(expression))} == {}


def test_alerts_ask_for_what_nodes_tell() -> None:
    wrong = {rule["alert"]: unknown(rule["expr"]) for rule in rules()}
    assert {name: names for name, names in wrong.items() if names} == {}


def test_every_alert_says_what_to_do_and_is_tested() -> None:
    tested = (DEPLOY / "prometheus/alerts_test.yml").read_text(encoding="utf-8")
    for rule in rules():
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert f"{rule['alert']} fires" in tested and f"{rule['alert']} is quiet" in tested


def test_the_dashboards_are_those_that_the_tables_make() -> None:
    spec = importlib.util.spec_from_file_location(
        "make_dashboards", DEPLOY / "grafana/make_dashboards.py"
    )
    assert spec is not None and spec.loader is not None
    maker = importlib.util.module_from_spec(spec)
    import sys

    sys.modules[spec.name] = maker  # dataclasses look their module up
    spec.loader.exec_module(maker)
    assert sorted(one.name for one in maker.DASHBOARDS) == DASHBOARDS
    for one in maker.DASHBOARDS:
        stored = (DEPLOY / "grafana/dashboards" / f"{one.name}.json").read_text(encoding="utf-8")
        assert stored == maker.text_of(one), "run python deploy/grafana/make_dashboards.py"


def test_the_dashboards_use_the_provisioned_source() -> None:
    file = DEPLOY / "grafana/provisioning/datasources/prometheus.yml"
    [source] = yaml.safe_load(file.read_text(encoding="utf-8"))["datasources"]
    for name in DASHBOARDS:
        uids = {panel["datasource"]["uid"] for panel in dashboard(name)["panels"]}
        assert uids == {source["uid"]}


# --- compose -----------------------------------------------------------------------------


def services(file: str) -> dict[str, dict[str, Any]]:
    found = yaml.safe_load((DEPLOY / file).read_text(encoding="utf-8"))["services"]
    return {name: one for name, one in found.items() if "profiles" not in one}


def environment(service: dict[str, Any]) -> dict[str, str]:
    given = {name: str(value) for name, value in service["environment"].items()}
    return {**given, "KAFKA_LOG_DIRS": "/var/lib/tidelog/data", "TIDELOG_HTTP_LISTENER": ":9644"}


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_every_node_would_start_with_its_settings(file: str) -> None:
    for name, service in services(file).items():
        loaded = load(environment=environment(service))
        assert loaded.warnings == (), name
        unknown_names = [
            setting
            for variable in service["environment"]
            if (setting := environment_setting(variable)) and setting not in BROKER_SETTINGS
        ]
        assert unknown_names == []


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_ids_and_volumes_are_used_once(file: str) -> None:
    nodes = services(file).values()
    assert len({node["environment"]["KAFKA_NODE_ID"] for node in nodes}) == len(nodes)
    assert len({node["volumes"][0] for node in nodes}) == len(nodes)


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_ports_are_published_on_the_loopback_address_only(file: str) -> None:
    whole = yaml.safe_load((DEPLOY / file).read_text(encoding="utf-8"))
    assert "name" not in whole and "version" not in whole
    ports = [port for service in whole["services"].values() for port in service.get("ports", [])]
    assert ports and all(port.startswith("127.0.0.1:") for port in ports)
    for wanted in ("19092", "29092", "39092"):
        assert f"127.0.0.1:{wanted}:{wanted}" in ports


@pytest.mark.parametrize("file", COMPOSE_FILES)
def test_the_image_is_that_of_the_containers_module(file: str) -> None:
    images = {service["image"] for service in services(file).values()}
    assert images == {f"${{TIDELOG_IMAGE:-{DEFAULT_IMAGE}}}"}
    assert f"IMAGE ?= {DEFAULT_IMAGE}\n" in (ROOT / "Makefile").read_text(encoding="utf-8")


def test_prometheus_scrapes_every_node() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text(encoding="utf-8"))
    [job] = config["scrape_configs"]
    targets = job["static_configs"][0]["targets"]
    assert targets == [f"{name}:9644" for name in services("docker-compose.yml")]


@pytest.mark.parametrize("setting", ["node.id", "log.segment.bytes", "advertised.listeners"])
def test_the_variable_of_a_setting_gives_it(setting: str) -> None:
    assert environment_setting(environment_variable(setting)) == setting
