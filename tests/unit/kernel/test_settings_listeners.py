"""Addresses in settings, and the checks between settings."""

from __future__ import annotations

import pytest

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.checks import conflicts, endpoints
from tidelog.kernel.settings.listeners import (
    Listener,
    MalformedAddress,
    parse_address,
    parse_listener,
    parse_protocol_map,
    parse_voters,
    same_endpoint_conflicts,
)

PLAIN = {"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"}
ONE_NODE = {"node.id": "1", "controller.quorum.voters": "1@localhost:9093"}


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9092", SocketAddress("localhost", 9092)),
        (":9092", SocketAddress("", 9092)),
        ("[::1]:9092", SocketAddress("::1", 9092)),
        ("[fe80::1%eth0]:1", SocketAddress("fe80::1%eth0", 1)),
        ("kafka_1.example.org:0", SocketAddress("kafka_1.example.org", 0)),
    ],
)
def test_addresses(text: str, address: SocketAddress) -> None:
    assert parse_address(text, dialled=False) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["", "localhost", "localhost:", "a:65536", "a:-1", "::1:9", "a b:1"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(MalformedAddress):
        parse_address(text, dialled=False)


@pytest.mark.parametrize("text", [":9092", "localhost:0"])
def test_what_cannot_be_dialled(text: str) -> None:
    with pytest.raises(MalformedAddress):
        parse_address(text, dialled=True)


def test_listeners_find_their_protocol() -> None:
    assert parse_listener("plaintext://:9092", PLAIN) == Listener(
        "PLAINTEXT", "", 9092, "PLAINTEXT"
    )
    assert parse_listener("SSL://h:1", PLAIN).protocol == "SSL"
    assert parse_listener("CONTROLLER://h:1", PLAIN, ["controller"]).protocol == "PLAINTEXT"
    assert str(parse_listener("SSL://[::1]:1", PLAIN)) == "SSL://[::1]:1"
    with pytest.raises(MalformedAddress, match="no protocol for DOCKER"):
        parse_listener("DOCKER://h:1", PLAIN)
    with pytest.raises(MalformedAddress, match="NAME://host:port"):
        parse_listener("localhost:9092", PLAIN)


def test_protocol_maps() -> None:
    assert parse_protocol_map("a:PLAINTEXT, B:sasl_ssl") == {"A": "PLAINTEXT", "B": "SASL_SSL"}
    for wrong in ("A", "A:TLS", ":SSL", "A:SSL,a:PLAINTEXT"):
        with pytest.raises(MalformedAddress):
            parse_protocol_map(wrong)


def test_voters() -> None:
    assert parse_voters(["1@a:9093", " 2@[::1]:9093"]) == {
        NodeId(1): SocketAddress("a", 9093),
        NodeId(2): SocketAddress("::1", 9093),
    }
    for wrong in (
        ["a:9093"],
        ["x@a:9093"],
        ["-1@a:9093"],
        ["1@:9093"],
        ["1@a:0"],
        ["1@a:1", "1@b:1"],
    ):
        with pytest.raises(MalformedAddress):
            parse_voters(wrong)


def test_shared_names_and_ports() -> None:
    def listeners(*texts: str) -> list[Listener]:
        names = [text.partition(":")[0] for text in texts]
        return [parse_listener(text, {}, names) for text in texts]

    assert same_endpoint_conflicts(listeners("A://:1", "B://:2")) == []
    assert same_endpoint_conflicts(listeners("A://:0", "B://:0")) == []
    assert same_endpoint_conflicts(listeners("A://127.0.0.1:1", "B://[::1]:1")) == []
    assert len(same_endpoint_conflicts(listeners("A://:1", "B://:1"))) == 1
    assert len(same_endpoint_conflicts(listeners("A://h:1", "B://g:1"))) == 1
    assert same_endpoint_conflicts(listeners("A://:1", "A://:2")) == ["two listeners are named A"]


def test_endpoints_of_a_bare_node() -> None:
    found = endpoints(Settings.of(ONE_NODE))
    assert found.rpc == Listener("CONTROLLER", "127.0.0.1", 9093, "PLAINTEXT")
    assert found.rpc_advertised == SocketAddress("localhost", 9093)
    assert found.clients == found.advertised == (Listener("PLAINTEXT", "", 9092, "PLAINTEXT"),)
    assert conflicts(Settings.of(ONE_NODE)) == []


def test_endpoints_of_a_broker() -> None:
    settings = Settings.of(
        {
            "process.roles": "broker",
            "node.id": "4",
            "listeners": "INTERNAL://:9092,HOST://:19092,CTL://:9093",
            "advertised.listeners": "INTERNAL://b4:9092,HOST://localhost:19092,CTL://b4:9093",
            "listener.security.protocol.map": "INTERNAL:PLAINTEXT,HOST:PLAINTEXT,X:SSL",
            "controller.listener.names": "CTL",
            "controller.quorum.voters": "1@c1:9093,2@c2:9093",
            "controller.quorum.bootstrap.servers": "c1:9093,c2:9093",
            "peer.dial.overrides": "1@127.0.0.1:5001",
        }
    )
    assert conflicts(settings) == []
    found = endpoints(settings)
    assert [listener.name for listener in found.clients] == ["INTERNAL", "HOST"]
    assert [str(listener) for listener in found.advertised] == [
        "INTERNAL://b4:9092",
        "HOST://localhost:19092",
    ]
    assert found.rpc.name == "CTL"
    assert found.rpc_advertised == SocketAddress("b4", 9093)
    assert found.bootstrap == (SocketAddress("c1", 9093), SocketAddress("c2", 9093))
    assert found.dial_overrides == {NodeId(1): SocketAddress("127.0.0.1", 5001)}


def looking_for_controllers_at(servers: str, roles: str = "broker,controller") -> Settings:
    return Settings.of(
        {
            "process.roles": roles,
            "node.id": "4",
            "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
            "advertised.listeners": "PLAINTEXT://b4:9092,CONTROLLER://b4:9093",
            "controller.quorum.bootstrap.servers": servers,
        }
    )


@pytest.mark.parametrize("own", ["localhost:9093", "127.0.0.1:9093", "b4:9093"])
def test_a_controller_that_looks_for_itself_is_alone(own: str) -> None:
    settings = looking_for_controllers_at(own)
    assert endpoints(settings).voters == {NodeId(4): SocketAddress.parse(own)}
    assert conflicts(settings) == []


@pytest.mark.parametrize(
    ("servers", "roles"),
    [
        ("b5:9093", "broker,controller"),
        ("localhost:9094", "broker,controller"),
        ("b4:9093,b5:9093", "broker,controller"),
        ("b4:9093", "broker"),
    ],
)
def test_others_must_know_the_voters(servers: str, roles: str) -> None:
    [complaint] = conflicts(looking_for_controllers_at(servers, roles))
    assert "controller.quorum.voters (id@host:port)" in complaint
    assert f"bootstrap.servers ({servers.replace(',', ', ')}) is enough only" in complaint


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        ({"node.id": ""}, "node.id must be given"),
        ({"broker.id": "2"}, "must be equal"),
        ({"process.roles": ""}, "process.roles must be"),
        ({"controller.listener.names": ""}, "controller.listener.names must name"),
        ({"log.dirs": ""}, "log.dirs or log.dir"),
        ({"controller.quorum.voters": ""}, "must say where the controllers are"),
        ({"controller.quorum.voters": "2@localhost:9093"}, "must list this controller, node 1"),
        ({"process.roles": "broker"}, "lists node 1, which is not a controller"),
        ({"controller.quorum.voters": "localhost:9093"}, "is not of the form node-id@host:port"),
        ({"listeners": "PLAINTEXT://:9092"}, "a controller needs one of"),
        ({"listeners": "CONTROLLER://:9093"}, "a broker needs a listener"),
        ({"listeners": "PLAINTEXT://:9092,CONTROLLER://:9092"}, "share port 9092"),
        ({"listeners": "SSL://:9092,CONTROLLER://:9093"}, "would speak SSL"),
        ({"listeners": "A://:9092,CONTROLLER://:9093"}, "gives no protocol for A"),
        (
            {"process.roles": "controller", "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"},
            "only a controller",
        ),
        (
            {"listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT"},
            "would speak SASL_PLAINTEXT",
        ),
        ({"listener.security.protocol.map": "nonsense"}, "listener.security.protocol.map:"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "nobody can dial"),
        ({"advertised.listeners": "SSL://h:1"}, "is not among listeners"),
        ({"advertised.listeners": "PLAINTEXT://h:1,PLAINTEXT://g:1"}, "advertised twice"),
        ({"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
         "must be at most log.cleaner.max.compaction.lag.ms (5)"),
        ({"group.min.session.timeout.ms": "9999999"}, "group.max.session.timeout.ms"),
        ({"group.consumer.session.timeout.ms": "1"}, "group.consumer.min.session.timeout.ms"),
        ({"broker.session.timeout.ms": "900"}, "broker.heartbeat.interval.ms (500)"),
        ({"log.retention.hours": "0"}, "log.retention.ms (0)"),
        ({"log.roll.ms": "0"}, "log.roll.ms (0)"),
        ({"group.consumer.assignors": ""}, "group.consumer.assignors must name"),
    ],
)  # fmt: skip
def test_conflicts(given: dict[str, str], complaint: str) -> None:
    values = {
        name: text for name, text in (ONE_NODE | given).items() if (name, text) != ("node.id", "")
    }
    found = conflicts(Settings.of(values))
    assert any(complaint in conflict for conflict in found), found


def test_the_older_name_of_the_node_id_will_do() -> None:
    settings = Settings.of({"broker.id": "1", "controller.quorum.voters": "1@h:9093"})
    assert settings.get_int("node.id") == 1
    assert conflicts(settings) == []


@pytest.mark.parametrize(
    ("given", "http"),
    [
        ({}, SocketAddress("127.0.0.1", 9644)),
        ({"http.listener": ""}, None),
        ({"http.listener": ":8080"}, SocketAddress("", 8080)),
        ({"http.listener": "[::1]:8080"}, SocketAddress("::1", 8080)),
    ],
)
def test_where_http_is_served(given: dict[str, str], http: SocketAddress | None) -> None:
    settings = Settings.of({**ONE_NODE, **given})
    assert conflicts(settings) == []
    assert endpoints(settings).http == http


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("9644", "http.listener: '9644' is not host:port"),
        ("h:99999", "http.listener: 'h:99999': a port is at most 65535"),
        (":9092", "share port 9092"),
    ],
)
def test_http_needs_a_port_of_its_own(given: str, says: str) -> None:
    [conflict] = conflicts(Settings.of({**ONE_NODE, "http.listener": given}))
    assert says in conflict
