"""Nodes are killed, lose power, are cut off and stall while a producer goes on: nothing is lost."""

from __future__ import annotations

import asyncio

import pytest
from replica_lab import Lab, LabNode, batch, in_lab

from tidelog.controller.metadata.partitions import PartitionRef
from tidelog.kernel.errors import ErrorCode


class Producer:
    """Sends one value after the other with acks=all, and sends again what was not acknowledged."""

    def __init__(self, lab: Lab, ref: PartitionRef) -> None:
        self.lab = lab
        self.ref = ref
        self.acknowledged: list[tuple[int, str]] = []
        self.sent = 0
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            self.sent += 1
            await self._deliver(f"v{self.sent}")

    async def _deliver(self, value: str) -> None:
        while not self.is_over:
            await asyncio.sleep(0.001)
            state = self.lab.controller.state(self.ref)
            node = self.lab.nodes.get(state.leader)
            partition = node.replicas.partitions.get(self.ref) if node and node.is_up else None
            if partition is None:
                continue
            produced = await partition.append(batch(value), acks=-1, timeout_ms=300)
            if produced.code is ErrorCode.NONE:
                self.acknowledged.append((produced.base_offset, value))
                return


async def fail_and_return(lab: Lab, node: LabNode, kind: str) -> None:
    draw = lab.world.random
    if kind in ("kill", "power"):
        await node.kill(power_loss=kind == "power")
        await asyncio.sleep(draw.uniform(0.0, 0.5))
        lab.controller.fence(node.id)
        await asyncio.sleep(draw.uniform(0.0, 1.5))
        await node.start()
    elif kind == "blackout":
        await asyncio.gather(*(one.kill(power_loss=True) for one in lab.nodes.values()))
        for one in lab.nodes.values():
            lab.controller.fence(one.id)
        order = list(lab.nodes.values())
        draw.shuffle(order)
        for one in order:
            await one.start()
    elif kind == "cut":
        others = [other for other in lab.nodes if other != node.id]
        for other in others:
            lab.network.cut(node.id, other)
        await asyncio.sleep(draw.uniform(0.0, 2.5))
        if draw.random() < 0.5:
            lab.controller.fence(node.id)
            await asyncio.sleep(draw.uniform(0.0, 1.0))
        lab.network.heal()
        lab.controller.unfence(node.id)
    else:
        node.disk.faults.step_delay_ms = draw.uniform(10, 200)
        await asyncio.sleep(draw.uniform(0.0, 2.0))
        node.disk.faults.step_delay_ms = 0.0


async def chaos(lab: Lab) -> None:
    ref = await lab.create("t", (1, 2, 3), segment_bytes="1048576")
    producer = Producer(lab, ref)
    producing = asyncio.create_task(producer.run())
    for _ in range(8):
        await asyncio.sleep(lab.world.random.uniform(0.0, 0.4))
        node = lab.nodes[lab.world.random.randrange(1, 4)]
        kind = lab.world.random.choice(("kill", "power", "cut", "slow", "blackout"))
        await fail_and_return(lab, node, kind)
    await asyncio.sleep(1)
    producer.is_over = True
    await producing
    await lab.in_sync(ref, 3)
    await lab.equal(ref)
    values = lab.leader(ref).values(ref)
    assert all(node.values(ref) == values for node in lab.nodes.values())
    assert len(producer.acknowledged) > 20
    for offset, value in producer.acknowledged:
        assert values[offset] == value


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    in_lab(chaos, seed=seed)
