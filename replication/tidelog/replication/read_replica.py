"""Which replica a consumer is sent to (KIP-392, the rack-aware selector). Pure."""

from __future__ import annotations

from tidelog.kernel.ids import NodeId, Offset
from tidelog.replication.cluster_view import ClusterView
from tidelog.replication.leader import LeaderPartition


def nearest_replica(
    leader: LeaderPartition, cluster: ClusterView, rack: str, offset: Offset
) -> NodeId:
    """A replica in the consumer's rack that has the offset and is in sync; else the leader.

    The leader is preferred if it is in the rack, then whoever has most of the log.
    """
    if cluster.rack_of(leader.me) == rack:
        return leader.me
    near = [
        remote
        for broker, remote in leader.remotes.items()
        if broker in leader.isr
        and remote.log_start <= offset <= remote.fetch_offset
        and remote.fetch_offset >= 0
        and cluster.is_alive(broker)
        and cluster.rack_of(broker) == rack
    ]
    if not near:
        return leader.me
    return max(near, key=lambda r: (r.fetch_offset, r.last_caught_up_ms, -r.broker)).broker
