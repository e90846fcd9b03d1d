"""Engine workers that come and go with the cluster's nodes, in place of Ray Data's own scaling.

Ray Data sizes a pool by how busy its actors are, takes idle ones away, and keeps the tasks of an
actor whose node is gone until that same actor has another node. Here a worker starts when a node
has room for it, none is taken away while its node stays, and what a lost one held goes to others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data._internal.actor_autoscaler import ActorPoolScalingRequest
from ray.data._internal.execution.interfaces import BlockEntry, RefBundle
from ray.data.block import BlockAccessor

from ace_ray import log
from ace_ray.run.actors.job import why_gone_there
from ace_ray.run.health.causes import NODE_GONE
from ace_ray.run.planning.cluster import Nodes, Resources, free_room

LOOK_S = 1.0
"""Between two looks at the cluster."""

PLACE_S = 60.0
"""For an actor to get a node and a process there, which takes a busy machine long. One that starts
again and has none by then gives its rows to others."""

MARGIN_S = 5.0
"""Before a node's deadline: for rows to be on their way to the checkers."""

ASK_S = 60.0
"""For the coordinator to answer."""


@dataclass
class _Task:
    """A block that an engine worker has."""

    actor: Any
    inputs: RefBundle
    out: int = 0
    """Rows that have come back."""


class ElasticWorkers:
    """The engine workers of one graph. All but the constructor is called in Ray Data's thread.

    Args:
        coordinator: the run's.
        need: what one worker takes, and how many there may be.
        room: how many workers these nodes hold, beside all else that the run needs.
        grace_s: for rows in flight on a node that is drained and has no deadline.
        stopping: whether the graph is to end.
        say: shows a line.
    """

    def __init__(
        self,
        coordinator: Any,
        need: Resources,
        room: Callable[[Nodes], int],
        grace_s: float,
        stopping: Callable[[], bool],
        say: Callable[[log.Line], None],
    ) -> None:
        self._coordinator, self._need, self._room = coordinator, need, room
        self._grace_s, self._stopping, self._say = grace_s, stopping, say
        self._op: Any = None
        self._queue: Any = None
        """What waits for a worker; Ray Data's."""
        self._tasks: dict[int, _Task] = {}
        self._unplaced: dict[Any, float] = {}
        """Actor without a node -> since when."""
        self._leaving: set[Any] = set()
        """Actors whose nodes are drained, which have been told."""
        self._lost: set[Any] = set()
        """Actors that the coordinator knows to be lost."""
        self._looked_at = 0.0

    def attach(self, executor: Any) -> None:
        """Take the workers over, before the graph of ``executor`` starts."""
        topology = executor._topology
        op = next(op for op in topology if "EngineWorker" in op.name)
        self._op, self._queue = op, topology[op]
        scaler = executor._actor_autoscaler
        scaler._topology = {other: state for other, state in topology.items() if other is not op}
        submit = op._submit_data_task

        def submitted(gen: Any, inputs: RefBundle, done: partial[None]) -> None:
            number = op._next_data_task_idx
            task = self._tasks[number] = _Task(done.keywords["actor_to_return"], inputs)

            def ended() -> None:
                done()
                del self._tasks[number]
                if task.out < inputs.num_rows() and task.actor in self._leaving:
                    self._take_back(inputs)

            submit(gen, inputs, ended)
            handed_on = op._data_tasks[number]._output_ready_callback

            def came(output: RefBundle) -> None:
                task.out += output.num_rows() or 0
                handed_on(output)

            op._data_tasks[number]._output_ready_callback = came

        op._submit_data_task = submitted

    def look(self) -> None:
        """Bring the workers into line with the nodes that are there, every `LOOK_S`."""
        if time.monotonic() - self._looked_at < LOOK_S or self._op.has_execution_finished():
            return
        self._looked_at = time.monotonic()
        nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
        draining: Mapping[str, int] = ray._private.state.state.get_draining_nodes()
        pool = self._op._actor_pool
        for actor, state in list(pool._running_actors.items()):
            self._check(actor, state, nodes, draining)
        for ready, actor in list(pool._pending_actors.items()):
            if self._without_node_s(actor, nodes) > PLACE_S:
                self._withdraw(ready, actor)
        if not self._stopping():
            self._grow({node: has for node, has in nodes.items() if node not in draining}, draining)
        if self._op._bundle_queue.has_next():
            self._op._try_schedule_tasks_internal()

    def _check(
        self, actor: Any, state: Any, nodes: Mapping[str, Any], draining: Mapping[str, int]
    ) -> None:
        """One that has started once."""
        node, alive = state.actor_location, self._alive(actor)
        if actor in self._lost:
            self._give_away(actor, state)
        elif alive and node in draining:
            self._drain(actor, state, draining[node])
        elif alive:
            self._unplaced.pop(actor, None)
        elif node not in nodes:
            self._lose(actor, state, node_gone=True)
        elif self._without_node_s(actor, nodes) > PLACE_S:
            self._lose(actor, state, node_gone=False)

    def _drain(self, actor: Any, state: Any, deadline_ms: int) -> None:
        """Let one end what it works on; Ray Data brings it no more blocks."""
        if actor not in self._leaving:
            self._leaving.add(actor)
            left = deadline_ms / 1000 - time.time() - MARGIN_S if deadline_ms else self._grace_s
            self._coordinator.leave_node.remote(_id(actor), max(0.0, left))
            line = f"a node is drained: its engine worker has {max(0.0, left):.0f} s to end rows"
            self._say(log.warning(line, event="worker_leaves"))
        if not state.num_tasks_in_flight:
            self._release(actor)
            self._coordinator.left.remote(_id(actor))
            self._tell("an engine worker has left its node")

    def _lose(self, actor: Any, state: Any, *, node_gone: bool) -> None:
        """Give what ``actor`` held to others; it is not started again."""
        process = ray.get(self._coordinator.process.remote(_id(actor)), timeout=ASK_S)
        gone = NODE_GONE if node_gone or process is None else why_gone_there(process, "")
        left = actor in self._leaving
        ray.get(
            self._coordinator.lost.remote(_id(actor), *gone, node=node_gone or left), timeout=ASK_S
        )
        self._lost.add(actor)
        held = state.num_tasks_in_flight
        self._give_away(actor, state)
        self._tell(f"an engine worker is lost ({gone[0]}), {held} blocks go to others")

    def _give_away(self, actor: Any, state: Any) -> None:
        """Take the blocks of a lost worker off the books, and queue those again of which nothing
        has come back. One that is just coming back does so first."""
        for number in [number for number, task in self._tasks.items() if task.actor == actor]:
            if self._op._data_tasks[number].has_pending_emits():
                continue
            task = self._tasks.pop(number)
            self._op._metrics.on_task_finished(number, RuntimeError("lost"), None, None)
            del self._op._data_tasks[number]
            self._op._output_queue.finalize(key=number)
            self._op._actor_pool.on_task_completed(actor)
            if not task.out:
                self._queue_again(task.inputs)
        if not state.num_tasks_in_flight:
            self._release(actor)
            # It would start again when it finds a node, and work on what others have by then.
            ray.kill(actor)

    def _take_back(self, inputs: RefBundle) -> None:
        """What a worker that leaves has not begun or not ended of a block."""
        for ref in inputs.block_refs:
            block: pa.Table = ray.get(ref)
            ids = block.column("row_id")
            given = ray.get(self._coordinator.given_back.remote(ids.to_pylist()), timeout=ASK_S)
            rest = block.filter(pc.is_in(ids, value_set=pa.array(given, ids.type)))
            if len(rest):
                entry = BlockEntry(ray.put(rest), BlockAccessor.for_block(rest).get_metadata())
                self._queue_again(RefBundle((entry,), schema=rest.schema, owns_blocks=False))

    def _queue_again(self, inputs: RefBundle) -> None:
        self._op._bundle_queue.add(inputs)
        self._op._metrics.on_input_queued(inputs, input_index=0)

    def _release(self, actor: Any) -> None:
        self._op._actor_pool._release_running_actor(actor)
        self._unplaced.pop(actor, None)
        self._leaving.discard(actor)
        self._lost.discard(actor)

    def _withdraw(self, ready: Any, actor: Any) -> None:
        """Another job was faster: it would take the place of a worker that starts again."""
        pool = self._op._actor_pool
        if pool.current_size() <= self._need.fewest:
            return
        pool._pending_actors[ready] = pool._pending_actors.pop(ready)
        while next(iter(pool._pending_actors)) is not ready:
            first = next(iter(pool._pending_actors))
            pool._pending_actors[first] = pool._pending_actors.pop(first)
        pool._try_remove_pending_actor()
        self._unplaced.pop(actor, None)
        ray.kill(actor)

    def _grow(self, nodes: Mapping[str, Any], draining: Mapping[str, int]) -> None:
        """Start workers where there is room, if rows wait for one; never fewer than are asked for,
        so that an autoscaler brings nodes."""
        waiting = self._queue.total_enqueued_input_blocks() or self._op._bundle_queue.has_next()
        if not waiting:
            return
        pool = self._op._actor_pool
        running = pool._running_actors.values()
        size = sum(state.actor_location not in draining for state in running)
        size += pool.num_pending_actors()
        free = ray._private.state.available_resources_per_node()
        places = sum(free_room(free.get(node, {}), self._need) for node in nodes)
        places -= sum(actor in self._unplaced for actor in pool._pending_actors.values())
        more = min(self._room([dict(has) for has in nodes.values()]) - size, places)
        more = max(more, self._need.fewest - size)
        if more > 0:
            pool.scale(ActorPoolScalingRequest.upscale(delta=more, reason="room"))
            for actor in pool._pending_actors.values():
                self._without_node_s(actor, nodes)
            self._tell(f"{more} more engine worker(s) start")

    def _tell(self, what: str) -> None:
        size = self._op._actor_pool.current_size()
        line = f"{what}: {size} of {self._need.fewest} to {self._need.limit}"
        self._say(log.warning(line, event="workers", workers=size))

    def _alive(self, actor: Any) -> bool:
        return bool(actor._get_local_state() == ray.core.generated.gcs_pb2.ActorTableData.ALIVE)

    def _without_node_s(self, actor: Any, nodes: Mapping[str, Any]) -> float:
        """For how long it has had none; 0: it has one, where it may be starting."""
        where = ray._private.state.actors(_id(actor)).get("Address", {}).get("NodeID")
        if where in nodes:
            self._unplaced.pop(actor, None)
            return 0.0
        return time.monotonic() - self._unplaced.setdefault(actor, time.monotonic())


def _id(actor: Any) -> str:
    return str(actor._actor_id.hex())
