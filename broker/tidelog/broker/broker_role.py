"""The broker role of a node: logs, replicas, and the clients that use them.

Start-up in order: take the directories and recover the logs, while the broker already heartbeats
as STARTING; register with what recovery found; follow the metadata; serve the other brokers; ask
to be unfenced; serve clients. Shut-down goes the other way: hand leadership over, hang up on
clients, stop replicating, close the logs and say in each directory that it was clean.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from tidelog.broker.calls import Handler
from tidelog.broker.context import BrokerContext
from tidelog.broker.controllers import ControllerCluster
from tidelog.broker.fetch_sessions import FetchSessions
from tidelog.broker.group_coordination import GroupCoordination
from tidelog.broker.handlers.administration import Administration
from tidelog.broker.handlers.api_versions import ApiVersions
from tidelog.broker.handlers.delete_records import DeleteRecords
from tidelog.broker.handlers.describe_log_dirs import DescribeLogDirs
from tidelog.broker.handlers.fetch import Fetch
from tidelog.broker.handlers.list_offsets import ListOffsets
from tidelog.broker.handlers.offset_for_leader_epoch import OffsetForLeaderEpoch
from tidelog.broker.ports import NodePorts
from tidelog.broker.replica_controller import ReplicaController
from tidelog.broker.server import ClientServer, ServerLimits
from tidelog.broker.transaction_coordination import TransactionCoordination
from tidelog.controller.client.controller_client import ControllerClient
from tidelog.controller.client.lifecycle import BrokerState
from tidelog.controller.decisions.policy import SUPPORTED_FEATURES
from tidelog.controller.decisions.registration import (
    RecoveryReport,
    RecoveryVerdict,
    RegistrationRequest,
)
from tidelog.controller.metadata.delta import MetadataDelta, delta_between
from tidelog.controller.metadata.image import MetadataImage
from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.controller.metadata.records import Endpoint, FeatureRange
from tidelog.kernel.addresses import SocketAddress
from tidelog.kernel.ids import NO_BROKER_EPOCH, BrokerEpoch, DirectoryId, NodeId
from tidelog.kernel.peers import PeerIdentity
from tidelog.kernel.settings import Settings
from tidelog.kernel.settings.checks import Endpoints
from tidelog.replication.cleaners import LogCleaners
from tidelog.replication.fetch_messages import FETCH, OFFSETS_FOR_EPOCH
from tidelog.replication.housekeeping import Housekeeping
from tidelog.replication.log_keeper import RecoveredLog
from tidelog.replication.replicas import ReplicaPorts, ReplicaSet
from tidelog.storage.log_dir import LogDirectory, OpenProgress
from tidelog.storage.opening import Verdict

log = logging.getLogger(__name__)

_VERDICTS: Final = {
    Verdict.TORN_TAIL: RecoveryVerdict.TORN_TAIL,
    Verdict.SUSPECT: RecoveryVerdict.SUSPECT,
}
_SHUTDOWN_TIMEOUT_MS: Final = 10_000.0


class BrokerRole:
    """Made with open directories; ``start`` serves, ``shut_down`` and ``close`` end it."""

    def __init__(
        self,
        settings: Settings,
        identity: PeerIdentity,
        endpoints: Endpoints,
        directories: Sequence[LogDirectory],
        ports: NodePorts,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._endpoints = endpoints
        self._directories = directories
        self._ports = ports
        self._on_fatal = on_fatal
        self._failed: dict[DirectoryId, None] = {}
        self._are_logs_open = False
        self._has_begun = False
        self._tasks: list[asyncio.Task[None]] = []
        self.client = ControllerClient(
            identity.node_id,
            peers=ports.peers,
            controllers=sorted(endpoints.voters),
            clock=ports.clock,
            random=ports.random,
            settings=settings,
        )
        self.replicas = ReplicaSet(
            ReplicaPorts(
                identity.node_id,
                ports.clock,
                ports.disk,
                ports.offload,
                ports.peers,
                ReplicaController(self.client),
                self._broker_epoch,
            ),
            directories,
            settings,
            on_directory_failed=self._directory_failed,
        )
        self.cleaners = LogCleaners(self.replicas, ports.random, ports.workers)
        self.context = BrokerContext(
            identity.node_id, identity.cluster_id, ControllerCluster(self.client), settings
        )
        self._administration = Administration(self.context)
        self.coordination = GroupCoordination(
            self.context,
            self.replicas,
            ports,
            self._administration.auto_creation,
            expected_brokers=len(endpoints.voters) if identity.node_id in endpoints.voters else 1,
        )
        self.transaction_coordination = TransactionCoordination(
            self.context, self.replicas, ports, self.coordination.groups, self._administration
        )
        self.server = ClientServer(
            ports.listener,
            self._handlers(),
            ports.clock,
            ServerLimits.of(settings),
            self.context.requests,
        )
        self.client.feed.subscribe(self._follow)

    # --- life --------------------------------------------------------------------------

    def serve_peers(self) -> None:
        """Register what the other brokers call; before the peer server starts."""
        service = self.replicas.fetch_service
        self._ports.peer_server.on_stream(FETCH, service.serve)
        self._ports.peer_server.on_unary(OFFSETS_FOR_EPOCH, service.offsets_for_epoch)
        self.coordination.serve_peers(self._ports.peer_server)
        self.transaction_coordination.serve_peers(self._ports.peer_server)

    async def start(self) -> None:
        """Return when clients are served; the broker may still be fenced for a moment."""
        self._spawn(self.client.run(), "controller client")
        recovered = await self.replicas.open_logs(
            concurrency=self._settings.get_int("num.recovery.threads.per.data.dir"),
            on_progress=_log_progress,
        )
        self.replicas.start()
        self._are_logs_open = True
        await self.client.register(self._registration(recovered))
        for directory in self._directories:
            if directory.failure is None:
                with suppress(OSError):  # else told once more by the next start
                    await self._ports.offload.run(directory.forget_suspects())
        self._begin_when_caught_up()
        self._spawn(Housekeeping(self.replicas).run(), "housekeeping")
        self._spawn(self.cleaners.run(), "cleaner")
        self._spawn(self.coordination.groups.sweep_for_ever(), "offset expiry")
        for listener in self._endpoints.clients:
            bound = await self.server.listen(
                listener.name, SocketAddress(listener.host, listener.port)
            )
            log.info("listener %s serves clients at %s", listener.name, bound)
        self.client.become_ready()
        await self.client.wait_for_state(BrokerState.RUNNING)
        self.context.follow(self.replicas.update_settings)
        self.context.follow(self.coordination.groups.update_settings)
        self.context.follow(self.transaction_coordination.transactions.update_settings)
        self._administration.producer_ids.prefetch()
        self.context.follow(lambda settings: self.server.set_limits(ServerLimits.of(settings)))
        log.info("broker %s is in service", self._identity.node_id)

    async def shut_down(self) -> None:
        """Hand leadership over while clients are still served."""
        if self.client.state is BrokerState.RUNNING:
            is_clean = await self.client.shut_down(timeout_ms=_SHUTDOWN_TIMEOUT_MS)
            if not is_clean:
                log.warning("no controller let this broker go in time; it stops all the same")

    async def close(self) -> None:
        """Serve nobody any more and close the logs."""
        await self.server.close()
        await self._administration.close()
        self.coordination.close()
        await self.transaction_coordination.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.replicas.close()
        if self.client.lifecycle.epoch is not None:
            self.replicas.close_directories()
        else:
            for directory in self._directories:
                directory.abandon()

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        task.add_done_callback(self._ended)
        self._tasks.append(task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_fatal(error)

    # --- metadata ----------------------------------------------------------------------

    def _follow(self, delta: MetadataDelta) -> None:
        """Every delta of the feed, from the first one on."""
        for broker_id in delta.brokers:
            self._learn_address(broker_id, delta)
        self.context.refresh()
        if self._has_begun:
            self.replicas.apply(delta)
            self.coordination.follow(delta)
            self.transaction_coordination.follow(delta)
        else:
            self._begin_when_caught_up()

    def _begin_when_caught_up(self) -> None:
        """Replicas take their roles from metadata that knows this life of the broker.

        Older metadata may say that it leads what others lead by now, and may not know yet of
        topics whose logs lie here; and nothing is placed here before all logs are open.
        """
        epoch = self.client.lifecycle.epoch
        image = self.client.feed.image
        if self._are_logs_open and epoch is not None and image.offset >= epoch:
            self._has_begun = True
            self.replicas.apply(delta_between(MetadataImage(), image))

    def _learn_address(self, broker_id: NodeId, delta: MetadataDelta) -> None:
        registration = delta.after.brokers.get(broker_id)
        if registration is None or registration.peer_endpoint is None:
            self._ports.addresses.forget(broker_id)
        else:
            told = registration.peer_endpoint
            self._ports.addresses.learn(broker_id, SocketAddress(told.host, told.port))

    def _broker_epoch(self) -> BrokerEpoch:
        epoch = self.client.lifecycle.epoch
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _directory_failed(self, directory: DirectoryId, reason: str) -> None:
        self._failed[directory] = None
        if len(self._failed) == len(self._directories):
            self._on_fatal(RuntimeError(f"no log directory is left: {reason}"))
        self.client.report_offline_directories(self._failed)

    def _registration(self, recovered: Collection[RecoveredLog]) -> RegistrationRequest:
        told = self._endpoints.rpc_advertised
        clean = [directory.clean_shutdown for directory in self._directories]
        epochs = {one.broker_epoch for one in clean if one is not None}
        was_clean = len(epochs) == 1 and all(clean)
        return RegistrationRequest(
            self._identity.node_id,
            self._identity.cluster_id,
            self._identity.incarnation_id,
            tuple(
                directory.directory_id
                for directory in self._directories
                if directory.failure is None
            ),
            tuple(Endpoint(one.name, one.host, one.port) for one in self._endpoints.advertised),
            tuple(
                FeatureRange(name, *levels) for name, levels in sorted(SUPPORTED_FEATURES.items())
            ),
            self._settings.get_optional_str("broker.rack"),
            Endpoint(self._endpoints.rpc.name, told.host, told.port),
            epochs.pop() if was_clean else NO_BROKER_EPOCH,
            tuple(_reports(recovered)),
            frozenset(
                PartitionRef(one.topic_id, one.report.tp.partition)
                for one in recovered
                if one.topic_id is not None
            ),
        )

    # --- handlers ----------------------------------------------------------------------

    def _handlers(self) -> dict[int, Handler]:
        context, replicas = self.context, self.replicas
        slots = self._settings.get_int("max.incremental.fetch.session.cache.slots")
        sessions = FetchSessions(slots, self._ports.random)
        handlers: list[Handler] = [
            *self._administration.handlers,
            *self.coordination.handlers,
            *self.transaction_coordination.handlers,
            Fetch(context, replicas, sessions, self._ports.clock),
            ListOffsets(context, replicas),
            OffsetForLeaderEpoch(context, replicas),
            DeleteRecords(context, replicas),
            DescribeLogDirs(context, replicas, self._ports.disk),
        ]
        keys = [int(handler.api_key) for handler in handlers]
        handlers.append(ApiVersions(context, [*keys, int(ApiVersions.api_key)]))
        return {int(handler.api_key): handler for handler in handlers}


def _reports(recovered: Iterable[RecoveredLog]) -> Iterable[RecoveryReport]:
    """Replicas that recovery did not find clean; without a topic id nobody can count on one."""
    for one in recovered:
        verdict = _VERDICTS.get(one.report.verdict)
        if verdict is not None and one.topic_id is not None:
            yield RecoveryReport(
                PartitionRef(one.topic_id, one.report.tp.partition),
                one.report.last_epoch,
                one.report.end_offset,
                verdict,
            )


def _log_progress(progress: OpenProgress) -> None:
    if progress.last.repairs:
        for repair in progress.last.repairs:
            log.warning("%s: %s", progress.last.tp, repair)
    if progress.done == progress.total or progress.done % 100 == 0:
        log.info("%d of %d logs are open", progress.done, progress.total)
