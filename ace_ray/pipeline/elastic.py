"""Add and remove engine workers as nodes join and leave, in place of Ray Data's own scaling.

Ray Data removes idle actors. If the node of an actor is gone, the actor's tasks wait until it has
another node. Here a worker starts when a node has room, and stays as long as its node. Other
workers get the blocks (rows that one task evaluates) of a lost worker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray

from ace_ray.cluster.ray_internals import (
    Task,
    TrackedPool,
    draining_nodes,
    free_resources,
    id_of,
    is_alive,
    node_of,
)
from ace_ray.cluster.resources import Nodes, Resources, count_fits, places_on
from ace_ray.pipeline.actors.worker_config import remote_death
from ace_ray.pipeline.health.crash_cause import NODE_GONE
from ace_ray.util import log

# Seconds between two checks of the cluster.
LOOK_S = 1.0

# Timeout for an actor to get a node and a process. After this time other workers get the rows of a
# restarting actor.
PLACE_S = 60.0

# Time before a node's deadline at which its rows must end, so that they reach the checkers.
MARGIN_S = 5.0

# Timeout of calls to the coordinator.
ASK_S = 60.0


@dataclass(eq=False)
class ElasticWorkers:
    """The engine workers of one graph. All methods run in Ray Data's thread."""

    coordinator: Any
    """Handle of the run's coordinator."""
    need: Resources
    """Resources of a worker, and the minimum and maximum number of workers."""
    refit: Callable[[Nodes], Resources]
    """Returns the run's resources on the given nodes."""
    grace_s: float
    """Time for rows in flight on a draining node without a deadline."""
    stopping: Callable[[], bool]
    """Returns whether the graph must end."""
    # A `TrackedPool`.
    _pool: Any = None
    # Actor without a node -> time at which it was first without one (`time.monotonic`).
    _unplaced: dict[Any, float] = field(default_factory=dict)
    # Actors on draining nodes.
    _leaving: set[Any] = field(default_factory=set)
    # Actors that were reported to the coordinator as lost.
    _lost: set[Any] = field(default_factory=set)
    _looked_at: float = 0.0

    def attach(self, executor: Any) -> None:
        """Take control of the engine workers. Call it before the graph of ``executor`` starts."""
        self._pool = TrackedPool(executor, "EngineWorker", self._queue_again)

    def adjust(self) -> None:
        """Start, drain and remove workers as the nodes change, at most once every `LOOK_S`."""
        if time.monotonic() - self._looked_at < LOOK_S:
            return
        now_s = self._looked_at = time.monotonic()
        nodes = {node["NodeID"]: node["Resources"] for node in ray.nodes() if node["Alive"]}
        draining = draining_nodes()
        running, pending = self._pool.nodes_by_actor(), self._pool.pending_actors()
        restarting = {actor for actor in running if not is_alive(actor)}
        self._unplaced = {
            actor: self._unplaced.get(actor, now_s)
            for actor in (*restarting, *pending)
            if node_of(actor) not in nodes
        }
        late = {actor for actor, since in self._unplaced.items() if now_s - since > PLACE_S}
        for actor, node in running.items():
            if actor in self._lost:
                self._requeue_tasks(actor)
            elif actor not in restarting and node in draining:
                self._drain(actor, draining[node])
            elif actor in restarting and node not in nodes:
                self._lose(actor, node_gone=True)
            elif actor in late:
                self._lose(actor, node_gone=False)
        for actor in pending:
            # A worker that starts late could take the node that a restarting worker needs.
            if actor in late and self._pool.size > self.need.fewest:
                self._pool.withdraw(actor)
                ray.kill(actor)
        if not self.stopping():
            self._grow({node: has for node, has in nodes.items() if node not in draining}, draining)

    def _drain(self, actor: Any, deadline_ms: int) -> None:
        """Let a worker on a draining node end its rows in flight, then remove it."""
        if actor not in self._leaving:
            self._leaving.add(actor)
            deadline_s = deadline_ms / 1000 - time.time() - MARGIN_S
            rows_s = max(0.0, deadline_s) if deadline_ms else self.grace_s
            self.coordinator.drain.remote(rows_s, id_of(actor))
            line = f"draining a node: its engine worker has {rows_s:.0f} s for its rows"
            log.warning(line, event="worker_leaves")
        if not self._pool.tasks_of(actor):
            self._release(actor)
            self.coordinator.note_removal.remote(id_of(actor))
            self._tell("an engine worker has left its node")

    def _lose(self, actor: Any, *, node_gone: bool) -> None:
        """Give the blocks of ``actor`` to other workers. The actor is not restarted."""
        name = id_of(actor)
        process = ray.get(self.coordinator.process.remote(name), timeout=ASK_S)
        gone = NODE_GONE if node_gone else remote_death(process, "")
        node_gone = node_gone or actor in self._leaving
        ray.get(self.coordinator.note_removal.remote(name, gone, node=node_gone), timeout=ASK_S)
        self._lost.add(actor)
        blocks = self._pool.tasks_of(actor)
        self._requeue_tasks(actor)
        self._tell(f"an engine worker was lost ({gone.why}), {blocks} blocks go to other workers")

    def _requeue_tasks(self, actor: Any) -> None:
        self._pool.requeue_tasks(actor)
        if not self._pool.tasks_of(actor):
            self._release(actor)
            # Otherwise Ray restarts the actor, which repeats rows that other workers evaluate.
            ray.kill(actor)

    def _queue_again(self, task: Task) -> None:
        """Queue the rows that the worker of ``task`` gave back, if the worker's node leaves."""
        if task.is_whole or task.actor not in self._leaving:
            return
        for block in task.blocks():
            ids = block.column("row_id")
            answer = self.coordinator.pop_returned.remote(ids.to_pylist())
            given_back_ids = pa.array(ray.get(answer, timeout=ASK_S), ids.type)
            rows = block.filter(pc.is_in(ids, value_set=given_back_ids))
            if len(rows):
                self._pool.queue(rows)

    def _release(self, actor: Any) -> None:
        self._pool.release(actor)
        self._leaving.discard(actor)
        self._lost.discard(actor)

    def _grow(self, nodes: Mapping[str, Any], draining: Mapping[str, int]) -> None:
        """Start workers on nodes with room, if blocks wait for a worker. If there are fewer workers
        than the minimum, start them even without room, so that an autoscaler adds nodes."""
        if not self._pool.is_waited_for:
            return
        size = sum(node not in draining for node in self._pool.nodes_by_actor().values())
        size += len(self._pool.pending_actors())
        free, worker = free_resources(), (self.need.worker_cpus, self.need.worker_gpus)
        slots = sum(places_on(free.get(node, {}), *worker) for node in nodes)
        slots -= sum(actor in self._unplaced for actor in self._pool.pending_actors())
        more = min(count_fits(self.need, self.refit, [*map(dict, nodes.values())]) - size, slots)
        more = max(more, self.need.fewest - size)
        if more > 0:
            self._pool.grow(more)
            self._tell(f"{more} more engine worker(s) starting")

    def _tell(self, event: str) -> None:
        size = self._pool.size
        line = f"{event}; {size} worker(s) now ({self.need.fewest} to {self.need.limit})"
        log.warning(line, event="workers", workers=size)
