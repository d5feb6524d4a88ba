"""Checks between settings: what is right by itself and wrong together.

The listener of the nodes' own traffic is the first of `controller.listener.names`. A node that
only serves clients need not list it (Kafka forbids it to); it then has one on the loopback
address. So has a node whose `listeners` were not given at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar

from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NodeId
from tidelog.kernel.settings.listeners import (
    Listener,
    MalformedAddress,
    parse_address,
    parse_listener,
    parse_protocol_map,
    parse_voters,
    same_endpoint_conflicts,
)
from tidelog.kernel.settings.values import Settings

DEFAULT_RPC_HOST: Final = "127.0.0.1"
DEFAULT_RPC_PORT: Final = 9093
_LOOPBACK_NAMES: Final = ("localhost", "127.0.0.1", "::1")

_T = TypeVar("_T")
_Listeners: TypeAlias = tuple[Listener, ...]
_Nodes: TypeAlias = Mapping[NodeId, SocketAddress]


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a node listens, what it tells clients, and whom it knows."""

    rpc: Listener
    """For the other nodes."""
    rpc_advertised: SocketAddress
    """Where the other nodes dial this one; the host may be empty, as below."""
    clients: tuple[Listener, ...]
    """For Kafka clients; none on a node that is only a controller."""
    advertised: tuple[Listener, ...]
    """What clients are told; a host may be empty, which means this machine's name."""
    voters: _Nodes
    bootstrap: tuple[SocketAddress, ...]
    dial_overrides: _Nodes
    http: SocketAddress | None = None
    """For metrics and health; none if that is off."""


def endpoints(settings: Settings) -> Endpoints:
    """The addresses in the settings; raises MalformedAddress naming the setting."""
    names = tuple(name.upper() for name in settings.get_list("controller.listener.names"))
    listening = _listeners_of(settings, "listeners", names)
    told = _listeners_of(settings, "advertised.listeners", names)
    rpc = _named(names, listening) or Listener(
        _first(names), DEFAULT_RPC_HOST, DEFAULT_RPC_PORT, "PLAINTEXT"
    )
    voters = _voters_of(settings, "controller.quorum.voters") or _alone(
        settings, rpc.address, (_named(names, told) or rpc).address
    )
    is_broker = "broker" in settings.get_list("process.roles")
    return Endpoints(
        rpc=rpc,
        rpc_advertised=_rpc_advertised(settings, voters, _named(names, told) or rpc),
        clients=_clients(names, listening) if is_broker else (),
        advertised=_clients(names, told or listening) if is_broker else (),
        voters=voters,
        bootstrap=_bootstrap_of(settings),
        dial_overrides=_voters_of(settings, "peer.dial.overrides"),
        http=_http_of(settings),
    )


def _http_of(settings: Settings) -> SocketAddress | None:
    name = "http.listener"
    text = settings.get_str(name)
    return _of(name, lambda: parse_address(text, dialled=False)) if text else None


def _listeners_of(settings: Settings, name: str, controllers: tuple[str, ...]) -> _Listeners:
    mapping = "listener.security.protocol.map"
    protocols = _of(mapping, lambda: parse_protocol_map(settings.get_str(mapping)))
    entries = settings.get_list(name) if settings.get(name) is not None else ()
    return _of(name, lambda: tuple(parse_listener(e, protocols, controllers) for e in entries))


def _named(names: tuple[str, ...], listeners: _Listeners) -> Listener | None:
    return next((one for name in names for one in listeners if one.name == name), None)


def _clients(controllers: tuple[str, ...], listeners: _Listeners) -> _Listeners:
    return tuple(listener for listener in listeners if listener.name not in controllers)


def _alone(settings: Settings, bound: SocketAddress, told: SocketAddress) -> _Nodes:
    """A controller that is told to look for the controllers at its own address is the only one.

    So says the file that comes with Kafka, which is meant for a quorum of one (KIP-853).
    """
    node_id, bootstrap = settings.get("node.id"), _bootstrap_of(settings)
    if "controller" not in settings.get_list("process.roles") or len(bootstrap) != 1:
        return {}
    [address] = bootstrap
    is_here = address.host in _LOOPBACK_NAMES and address.port == bound.port
    if not isinstance(node_id, int) or not (is_here or address in (bound, told)):
        return {}
    return {NodeId(node_id): address}


def _rpc_advertised(settings: Settings, voters: _Nodes, rpc: Listener) -> SocketAddress:
    """A voter is dialled where the list of voters says, whatever it listens on itself."""
    node_id = settings.get("node.id")
    own = voters.get(NodeId(node_id)) if isinstance(node_id, int) else None
    return own or rpc.address


def _first(names: tuple[str, ...]) -> str:
    return names[0] if names else "CONTROLLER"


def _of(name: str, read: Callable[[], _T]) -> _T:
    try:
        return read()
    except MalformedAddress as malformed:
        raise MalformedAddress(f"{name}: {malformed}") from None


def _voters_of(settings: Settings, name: str) -> _Nodes:
    return _of(name, lambda: parse_voters(settings.get_list(name)))


def _bootstrap_of(settings: Settings) -> tuple[SocketAddress, ...]:
    name = "controller.quorum.bootstrap.servers"
    return _of(name, lambda: tuple(parse_address(e, dialled=True) for e in settings.get_list(name)))


def conflicts(settings: Settings) -> list[str]:
    """Everything that does not fit together, one sentence each."""
    found = [*_identity_conflicts(settings), *_limit_conflicts(settings)]
    try:
        addresses = endpoints(settings)
    except MalformedAddress as malformed:
        return [*found, str(malformed)]
    return [
        *found,
        *_listener_conflicts(settings, addresses),
        *_quorum_conflicts(settings, addresses),
    ]


def _identity_conflicts(settings: Settings) -> list[str]:
    found = []
    node_id, broker_id = settings.own("node.id"), settings.own("broker.id")
    given = settings.is_given("broker.id")
    if node_id is None and (not given or broker_id == -1):
        found.append("node.id must be given: a number from 0 that no other node has")
    elif node_id is not None and given and broker_id != -1 and node_id != broker_id:
        found.append(f"node.id ({node_id}) and broker.id ({broker_id}) must be equal")
    elif isinstance(broker_id, int) and broker_id < -1:
        found.append(f"broker.id ({broker_id}) must be at least 0")
    if not settings.get_list("process.roles"):
        found.append("process.roles must be broker, controller, or both")
    if not settings.get_list("controller.listener.names"):
        found.append("controller.listener.names must name a listener")
    if not settings.get_list("log.dirs"):
        found.append("log.dirs or log.dir must name a directory")
    return found


def _at_most(settings: Settings, smaller: str, larger: str) -> list[str]:
    low, high = settings.get_long(smaller), settings.get_long(larger)
    return [] if low <= high else [f"{smaller} ({low}) must be at most {larger} ({high})"]


_ORDERED: Final = (
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("broker.stream.grace.ms", "broker.session.timeout.ms"),
)


def _limit_conflicts(settings: Settings) -> list[str]:
    found = [conflict for pair in _ORDERED for conflict in _at_most(settings, *pair)]
    for name in ("log.retention.ms", "log.roll.ms"):
        value = settings.get_long(name)
        if value == 0 or value < -1 or (value == -1 and name == "log.roll.ms"):
            unlimited = "-1 (unlimited) or " if name == "log.retention.ms" else ""
            found.append(f"{name} ({value}) must be {unlimited}at least 1")
    if not settings.get_list("group.consumer.assignors"):
        found.append("group.consumer.assignors must name at least one of uniform, range")
    heartbeat = settings.get_int("broker.heartbeat.interval.ms")
    session = settings.get_int("broker.session.timeout.ms")
    if heartbeat < 1 or 2 * heartbeat > session:
        found.append(
            f"broker.heartbeat.interval.ms ({heartbeat}) must be from 1 to half of"
            f" broker.session.timeout.ms ({session})"
        )
    return found


def _listener_conflicts(settings: Settings, addresses: Endpoints) -> list[str]:
    roles = settings.get_list("process.roles")
    names = {name.upper() for name in settings.get_list("controller.listener.names")}
    listening = (*addresses.clients, addresses.rpc)
    found = [
        f"listeners: {listener} would speak {listener.protocol}, which is not available here;"
        " only PLAINTEXT is"
        for listener in dict.fromkeys((*listening, *addresses.advertised))
        if listener.protocol != "PLAINTEXT"
    ]
    found += [f"listeners: {conflict}" for conflict in same_endpoint_conflicts(listening)]
    if addresses.http is not None and settings.is_given("http.listener"):
        http = Listener("http.listener", addresses.http.host, addresses.http.port, "PLAINTEXT")
        shared = same_endpoint_conflicts((*listening, http))
        found += [conflict for conflict in shared if str(http) in conflict]
    listed = {entry.partition("://")[0].upper() for entry in settings.get_list("listeners")}
    if "broker" in roles and not addresses.clients:
        found.append("listeners: a broker needs a listener besides controller.listener.names")
    if "controller" in roles and settings.is_given("listeners") and not names & listed:
        found.append(
            f"listeners: a controller needs one of controller.listener.names"
            f" ({', '.join(sorted(names))})"
        )
    if roles == ("controller",) and listed - names and settings.is_given("listeners"):
        found.append(
            "listeners: a node that is only a controller listens on controller.listener.names only"
        )
    found += _advertised_conflicts(addresses)
    return found


def _advertised_conflicts(addresses: Endpoints) -> list[str]:
    known = {listener.name for listener in addresses.clients}
    found = []
    for listener in addresses.advertised:
        if listener.host in ("0.0.0.0", "::"):
            found.append(f"advertised.listeners: nobody can dial {listener}; give a host name")
        if listener.name not in known:
            found.append(f"advertised.listeners: {listener} is not among listeners")
    if len({listener.name for listener in addresses.advertised}) < len(addresses.advertised):
        found.append("advertised.listeners: a listener is advertised twice")
    return found


def _quorum_conflicts(settings: Settings, addresses: Endpoints) -> list[str]:
    if not addresses.voters:
        others = ", ".join(map(str, addresses.bootstrap))
        return [
            "controller.quorum.voters (id@host:port) must say where the controllers are"
            + (
                f"; controller.quorum.bootstrap.servers ({others}) is enough only for a"
                " controller that is the only one"
                if others
                else ""
            )
        ]
    node_id = settings.get("node.id")
    votes = node_id in addresses.voters
    is_controller = "controller" in settings.get_list("process.roles")
    listed = ", ".join(f"{node}@{address}" for node, address in addresses.voters.items())
    if is_controller and not votes:
        return [f"controller.quorum.voters ({listed}) must list this controller, node {node_id}"]
    if votes and not is_controller:
        return [
            f"controller.quorum.voters ({listed}) lists node {node_id}, which is not a controller"
        ]
    return []
