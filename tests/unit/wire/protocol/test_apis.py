"""The table of APIs against Kafka 4.3.1's and against kio, and what a registration advertises."""

from __future__ import annotations

import subprocess
import sys

import pytest
from kio.index import load_request_schema, load_response_schema
from protocol_golden import GOLDEN, table

from tidelog.wire.protocol.apis import APIS, Api, ApiKey, ApiVersionRange, advertised, served_apis

KAFKA = {row["key"]: row for row in table("apis")}
BROKER_KEYS = {key for key, row in KAFKA.items() if "broker" in row["listeners"]}

# Key: (min, max) where ours differ from Kafka's, with the reason in the docstring of `apis`.
OTHER_RANGES: dict[int, tuple[int, int]] = {
    ApiKey.PRODUCE: (0, 13),  # the table of Kafka's classes says 3; it advertises 0 as we do
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
}
NOT_PLANNED = {
    "AlterReplicaLogDirs", "CreateDelegationToken", "RenewDelegationToken",
    "ExpireDelegationToken", "DescribeDelegationToken",
    "GetTelemetrySubscriptions", "PushTelemetry", "ListConfigResources",
    "ShareGroupHeartbeat", "ShareGroupDescribe", "ShareFetch", "ShareAcknowledge",
    "InitializeShareGroupState", "ReadShareGroupState",
    "WriteShareGroupState", "DeleteShareGroupState", "ReadShareGroupStateSummary",
    "StreamsGroupHeartbeat", "StreamsGroupDescribe", "DescribeShareGroupOffsets",
    "AlterShareGroupOffsets", "DeleteShareGroupOffsets",
}  # fmt: skip
VERSIONS = [
    pytest.param(api, version, id=f"{api.name}-{version}")
    for api in APIS.values()
    for version in range(api.min_served, api.max_version + 1)
]


def test_ranges_are_kafkas_but_for_those_listed() -> None:
    kafkas = {
        key: (KAFKA[key]["min"], KAFKA[key]["max_stable"]) for key in APIS if key in BROKER_KEYS
    }
    ours = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
    assert ours == {**kafkas, **OTHER_RANGES}


def test_what_kafka_serves_and_we_do_not_plan_is_listed() -> None:
    assert {KAFKA[key]["name"] for key in BROKER_KEYS - APIS.keys()} == NOT_PLANNED


def test_names_are_kafkas() -> None:
    assert {key: api.name for key, api in APIS.items()} == {key: KAFKA[key]["name"] for key in APIS}


def test_only_produce_is_advertised_lower_than_it_is_served() -> None:
    lower = [api.name for api in APIS.values() if api.min_served != api.min_version]
    assert lower == ["Produce"]
    assert APIS[ApiKey.PRODUCE].min_served == 3


@pytest.mark.parametrize(("api", "version"), VERSIONS)
def test_headers_are_those_kio_gives(api: Api, version: int) -> None:
    request = load_request_schema(api.key, version)
    response = load_response_schema(api.key, version)
    assert api.is_flexible(version) == request.__flexible__ == response.__flexible__
    assert api.load_request_type(version) is request
    assert api.load_response_type(version) is response
    request_header = request.__header_schema__.__version__
    response_header = response.__header_schema__.__version__
    assert api.request_header_version(version) == request_header
    assert api.response_header_version(version) == response_header


def test_an_api_is_advertised_once_it_has_a_handler() -> None:
    assert advertised(set()) == ()
    assert advertised({18, 0, 3}) == (
        ApiVersionRange(0, 0, 13),
        ApiVersionRange(3, 0, 13),
        ApiVersionRange(18, 0, 4),
    )
    assert list(served_apis({3})) == [3]


def test_a_handler_without_an_api_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"\[4, 999\]"):
        advertised({0, 4, 999})


def test_the_package_is_loaded_without_kio() -> None:
    """All versions take seconds; even the first needs a quarter of one."""
    package = GOLDEN.parents[2] / "wire/tidelog/wire/protocol"
    modules = [
        "tidelog.wire.protocol."
        + ".".join(path.relative_to(package).with_suffix("").parts).removesuffix("__init__")
        for path in sorted(package.rglob("*.py"))
    ]
    loads = "; ".join(f"import {name.rstrip('.')}" for name in modules)
    lists = "import sys; print([m for m in sys.modules if m.split('.')[0] == 'kio'])"
    loaded = subprocess.run(
        [sys.executable, "-c", f"{loads}; {lists}"], capture_output=True, text=True, check=True
    )
    assert loaded.stdout.strip() == "[]"


def test_a_decoded_request_loads_its_own_version_only() -> None:
    script = (
        "import sys\n"
        "from tidelog.wire.protocol.requests import decode_request\n"
        "decode_request(42, 2, memoryview(b'\\x02\\x02a\\x00'))\n"
        "print(sorted(m for m in sys.modules if m.startswith('kio.schema.delete_groups.v')))\n"
        "print(sorted(m for m in sys.modules if m.startswith('kio.schema.metadata')))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    own = [f"kio.schema.delete_groups.v2{part}" for part in ("", ".request", ".response")]
    assert loaded.stdout.splitlines() == [str(own), "[]"]
