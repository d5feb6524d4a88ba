"""A coordinator's view of its partition, on a disk that cannot be read."""

from __future__ import annotations

import pytest
from replica_lab import Lab, in_lab

from tidelog.broker.shard_partition import LeaderPartition
from tidelog.coordinator.runtime.ports import CannotLoad
from tidelog.kernel.ids import Offset
from tidelog.simulation.offload import SimOffload
from tidelog.simulation.random import SimRandom


def test_a_replica_that_cannot_be_loaded_from_gives_its_leadership_up() -> None:
    """Else its groups would stay without a coordinator for as long as the broker lives."""

    async def script(lab: Lab) -> None:
        ref = await lab.create("t", (1, 2, 3))
        await lab.produce(ref, "a")
        node = lab.nodes[1]
        offload = SimOffload(SimRandom(1), node.disk.faults)
        shard = LeaderPartition(node.partition(ref), offload)
        assert await shard.read(Offset(0), 1000) != b""
        node.disk.faults.fail("read", ".log")
        with pytest.raises(CannotLoad, match="offset 0 cannot be read"):
            await shard.read(Offset(0), 1000)
        await lab.until(lambda: lab.leader(ref).id != 1)
        await node.kill()

    in_lab(script)
