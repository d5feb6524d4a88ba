"""The brokers and controllers that have registered."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from tidelog.controller.metadata.partitions import UNASSIGNED
from tidelog.controller.metadata.records import (
    BrokerRegistrationChange,
    Endpoint,
    FeatureRange,
    RegisterBroker,
    RegisterController,
)
from tidelog.kernel.ids import (
    NO_OFFSET,
    BrokerEpoch,
    DirectoryId,
    IncarnationId,
    NodeId,
    Offset,
)


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One incarnation of a broker. Its epoch names it: whoever acts for an older one is stale."""

    broker_id: NodeId
    incarnation_id: IncarnationId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    controlled_shutdown_at: Offset
    """The offset at which its controlled shutdown began."""
    log_dirs: tuple[DirectoryId, ...]
    """The directories that work; a failed one is not among them."""
    peer_endpoint: Endpoint | None

    @property
    def is_active(self) -> bool:
        """Whether it may be given leadership and a place in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: DirectoryId) -> bool:
        if directory == UNASSIGNED:
            return bool(self.log_dirs)
        return directory in self.log_dirs

    @property
    def only_directory(self) -> DirectoryId:
        """Where a new replica must end up if there is no choice, else UNASSIGNED."""
        return self.log_dirs[0] if len(self.log_dirs) == 1 else UNASSIGNED

    @classmethod
    def of(cls, record: RegisterBroker) -> BrokerRegistration:
        return cls(
            broker_id=record.broker_id,
            incarnation_id=record.incarnation_id,
            epoch=record.broker_epoch,
            endpoints=record.endpoints,
            features=record.features,
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            controlled_shutdown_at=record.controlled_shutdown_at,
            log_dirs=record.log_dirs,
            peer_endpoint=record.peer_endpoint,
        )

    def record(self) -> RegisterBroker:
        """The record that gives this registration again."""
        return RegisterBroker(
            broker_id=self.broker_id,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            endpoints=self.endpoints,
            features=self.features,
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            controlled_shutdown_at=self.controlled_shutdown_at,
            log_dirs=self.log_dirs,
            peer_endpoint=self.peer_endpoint,
        )

    def changed(self, change: BrokerRegistrationChange, offset: Offset) -> BrokerRegistration:
        """The registration after a change that stands at ``offset``."""
        shutting_down, since = self.in_controlled_shutdown, self.controlled_shutdown_at
        if change.in_controlled_shutdown is not None:
            shutting_down = change.in_controlled_shutdown
            since = offset if shutting_down else NO_OFFSET
        return dataclasses.replace(
            self,
            fenced=self.fenced if change.fenced is None else change.fenced,
            in_controlled_shutdown=shutting_down,
            controlled_shutdown_at=since,
            log_dirs=self.log_dirs if change.log_dirs is None else change.log_dirs,
        )


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    controller_id: NodeId
    incarnation_id: IncarnationId
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]

    @classmethod
    def of(cls, record: RegisterController) -> ControllerRegistration:
        return cls(record.controller_id, record.incarnation_id, record.endpoints, record.features)

    def record(self) -> RegisterController:
        return RegisterController(
            self.controller_id, self.incarnation_id, self.endpoints, self.features
        )
