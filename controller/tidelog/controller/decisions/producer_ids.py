"""Producer ids are handed to brokers in blocks; a block is used only after it is committed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tidelog.controller.decisions.broker_states import stale_broker_epoch
from tidelog.controller.decisions.outcome import NO_ERROR, ApiError, Decision
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.records import ProducerIds
from tidelog.kernel.errors import ErrorCode
from tidelog.kernel.ids import NO_PRODUCER_ID, BrokerEpoch, NodeId, ProducerId

BLOCK_SIZE: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ProducerIdBlock:
    error: ApiError
    first: ProducerId = NO_PRODUCER_ID
    size: int = 0


def decide_producer_ids(
    image: MetadataImage, broker: NodeId, epoch: BrokerEpoch
) -> Decision[ProducerIdBlock]:
    stale = stale_broker_epoch(image, broker, epoch)
    if stale is not None:
        return Decision((), ProducerIdBlock(stale))
    first = image.next_producer_id
    if first > MAX_PRODUCER_ID - BLOCK_SIZE:
        exhausted = ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "All producer ids have been used")
        return Decision((), ProducerIdBlock(exhausted))
    record = ProducerIds(broker, epoch, ProducerId(first + BLOCK_SIZE))
    return Decision((record,), ProducerIdBlock(NO_ERROR, first, BLOCK_SIZE))
