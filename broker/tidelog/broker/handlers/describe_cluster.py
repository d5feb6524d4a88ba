"""DescribeCluster: the brokers by the addresses of the asker's listener (KIP-700)."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from tidelog.broker.calls import Call
from tidelog.broker.context import BrokerContext
from tidelog.broker.handlers.operations import CLUSTER_OPERATIONS, NOT_ASKED
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_NODE
from tidelog.wire.protocol.apis import ApiKey
from tidelog.wire.protocol.frames import ResponseFrame
from tidelog.wire.protocol.kio_values import duration_i32, field_of
from tidelog.wire.protocol.responses import encode_response, response_structs


class EndpointType(IntEnum):
    BROKER = 1
    CONTROLLER = 2


class DescribeCluster:
    api_key = ApiKey.DESCRIBE_CLUSTER
    is_pipelined = False

    def __init__(self, context: BrokerContext) -> None:
        self._context = context

    def begin(self, call: Call) -> ResponseFrame:
        endpoint_type = field_of(call.request, "endpoint_type", EndpointType.BROKER.value)
        if endpoint_type == EndpointType.BROKER:
            return self._describe(call)
        if endpoint_type == EndpointType.CONTROLLER:
            message = (
                "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of"
                " type CONTROLLER"
            )
            return _response(
                call, error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE, error_message=message
            )
        message = f"Unsupported endpoint type {endpoint_type}"
        return _response(
            call, error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, error_message=message
        )

    def _describe(self, call: Call) -> ResponseFrame:
        request: Any = call.request
        structs = response_structs(self.api_key, call.version)
        view = self._context.view(call.client.listener_name)
        with_fenced = field_of(request, "include_fenced_brokers", False)
        brokers = [
            structs.struct(
                "DescribeClusterBroker",
                broker_id=node.node_id,
                host=node.host,
                port=node.port,
                rack=node.rack,
                is_fenced=not view.is_live(node.node_id),
            )
            for node in (view.registered.values() if with_fenced else view.live)
        ]
        asked = request.include_cluster_authorized_operations
        return _response(
            call,
            cluster_id=self._context.cluster_id,
            controller_id=view.controller_id,
            brokers=tuple(brokers),
            cluster_authorized_operations=CLUSTER_OPERATIONS if asked else NOT_ASKED,
        )


def _response(call: Call, **values: Any) -> ResponseFrame:
    defaults: dict[str, Any] = {
        "throttle_time": duration_i32(0),
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "endpoint_type": EndpointType.BROKER.value,
        "cluster_id": "",
        "controller_id": NO_NODE,
        "brokers": (),
        "cluster_authorized_operations": NOT_ASKED,
    }
    structs = response_structs(call.api.key, call.version)
    message = structs.response(**{**defaults, **values})
    return encode_response(call.api.key, call.version, call.correlation_id, message)
