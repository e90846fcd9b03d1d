"""Access to Ray's private modules, and the patches of Ray that a run applies.

No other module of the package imports ``ray._private`` or ``ray.data._internal``, or uses a private
attribute of Ray's objects. `tests/cluster/test_ray_internals.py` lists for each private name what
fails without it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import ray
from ray._private import parameter
from ray._private.node import Node
from ray.data import Dataset
from ray.data._internal import stats
from ray.data._internal.actor_autoscaler import ActorPoolScalingRequest
from ray.data._internal.execution import streaming_executor
from ray.data._internal.execution.execution_callback import ExecutionCallback as ExecutionCallback
from ray.data._internal.execution.interfaces import BlockEntry, RefBundle
from ray.data._internal.execution.interfaces.execution_options import ExecutionResources
from ray.data._internal.execution.node_trackers import actor_location
from ray.data._internal.execution.operators.actor_pool_map_operator import ActorPoolMapOperator
from ray.data.block import BlockAccessor

# Maximum lines of a worker's log that `worker_log` returns, characters of each, and bytes read.
LOG_LINES, LOG_CHARS, LOG_BYTES = 200, 1_000, 1 << 18


@contextmanager
def patch(owner: Any, **attributes: Any) -> Iterator[None]:
    """Replace attributes of ``owner`` until the context ends."""
    before = {name: getattr(owner, name) for name in attributes}
    for name, value in attributes.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def lean_node(*, shows_output: bool) -> Iterator[None]:
    """Context in which a local Ray starts without helper processes that a run does not need: the
    autoscaler, the dashboard server (`ray.init` waits for this server even with
    ``include_dashboard=False``) and, unless ``shows_output``, the log monitor."""
    # Measured with `lean_data`, before the third actor there: a run of two rows takes 11.0 s of CPU
    # time instead of 15.2 s, on 2 cores.
    params = partial(parameter.RayParams, no_monitor=True, include_log_monitor=shows_output)
    with patch(parameter, RayParams=params), patch(Node, start_api_server=lambda self, **_: None):
        yield


@contextmanager
def lean_data() -> Iterator[None]:
    """Context in which graphs run without three actors that Ray Data would start.

    Each actor imports Ray Data (1.5 s of CPU time) while the engine starts. The first collects
    statistics for a dashboard, which a local Ray does not have. The second shares a cluster among
    datasets. The third reports the nodes of actors, which do not change in a local Ray."""
    no_op = SimpleNamespace(remote=lambda *_: None)
    statistics = SimpleNamespace(
        register_dataset=no_op, update_execution_metrics=no_op, update_iteration_metrics=no_op
    )
    tracker = SimpleNamespace(
        update_actor_location=no_op,
        get_actor_locations=SimpleNamespace(remote=lambda _: ray.put({})),
    )
    total = ExecutionResources.from_resource_dict(ray.cluster_resources())
    autoscaler = SimpleNamespace(
        try_trigger_scaling=lambda: None,
        on_executor_shutdown=lambda: None,
        get_total_resources=lambda: total,
    )
    starts_tracker = SimpleNamespace(options=lambda **_: SimpleNamespace(remote=lambda: tracker))
    with (
        patch(streaming_executor, create_cluster_autoscaler=lambda *_, **__: autoscaler),
        patch(stats, get_or_create_stats_actor=lambda: statistics),
        patch(actor_location, ActorLocationTracker=starts_tracker),
    ):
        yield


@contextmanager
def arguments_as_values() -> Iterator[None]:
    """Context in which Ray Data starts actors that can restart after the driver's node is lost.

    Ray Data passes an actor's code as a reference to the object store of the driver's node, and Ray
    prints an error about this for every actor. Here the GCS gets the code as a value."""
    start: Callable[..., Any] = ActorPoolMapOperator._start_actor

    def start_with_values(op: Any, *args: Any, **kwargs: Any) -> Any:
        values = {"_map_transformer_ref": op._map_transformer, "_data_context_ref": op.data_context}
        with patch(op, **values):  # afterwards tasks use the references again
            return start(op, *args, **kwargs)

    with patch(ActorPoolMapOperator, _start_actor=start_with_values):
        yield


def map_blocks(dataset: Dataset, worker: type, **options: Any) -> Dataset:
    """Return ``dataset`` with its blocks (Arrow tables) mapped by actors of the class ``worker``.

    This does not use ``map_batches``, which requires a batch size for actors with GPUs, and would
    wait for that many rows. vLLM makes its own batches."""
    return dataset.map_batches_internal(worker, batch_size=None, batch_format="pyarrow", **options)


def wait_for_any(executor: Any, *, at_most_s: float, at_most_tasks: int) -> None:
    """Wait until a task of the graph has ended or has output, for at most ``at_most_s`` seconds.

    If ``at_most_tasks`` or more tasks are in flight, return at once: one of them ends soon, and the
    cost of waiting grows with their number."""
    tasks = (task for operator in executor._topology for task in operator.get_active_tasks())
    waitables = [task.get_waitable() for task in islice(tasks, at_most_tasks)]
    if 0 < len(waitables) < at_most_tasks:
        ray.wait(waitables, num_returns=1, timeout=at_most_s, fetch_local=False)


def waiting_blocks(executor: Any, name: str) -> tuple[int, int]:
    """Count the blocks for the actors of the class ``name`` in the graph. Return the number of
    queued blocks, which no actor has yet, and the number of queued blocks and blocks in actors."""
    op, state = next((op, s) for op, s in executor._topology.items() if name in op.name)
    queued = int(state.total_enqueued_input_blocks())
    return queued, queued + int(op.num_active_tasks())


@dataclass
class Task:
    """A task of Ray Data: input blocks on which an actor works."""

    actor: Any
    inputs: RefBundle
    finish: Callable[[], None]
    """Tells Ray Data that the actor has ended the task."""
    out: int = 0
    """Number of rows that the actor has returned."""

    @property
    def is_whole(self) -> bool:
        """Return whether the actor has returned as many rows as it received."""
        return bool(self.out >= self.inputs.num_rows())

    def blocks(self) -> Iterator[pa.Table]:
        for ref in self.inputs.block_refs:
            yield ray.get(ref)


class TrackedPool:
    """Controls the number of actors of the class named ``name`` in a graph, in place of Ray Data,
    and tracks the tasks of each actor.

    Create it before the graph of ``executor`` starts. ``on_end`` is called with each ended task."""

    def __init__(self, executor: Any, name: str, on_end: Callable[[Task], None]) -> None:
        self._op = op = next(op for op in executor._topology if name in op.name)
        # Without the operator here, Ray Data's own scaling does not change its actors.
        executor._actor_autoscaler._topology = dict(executor._topology)
        self._state = executor._actor_autoscaler._topology.pop(op)
        self._pool = op._actor_pool
        self._tasks: dict[int, Task] = {}
        submit = op._submit_data_task

        def submit_task(gen: Any, inputs: RefBundle, finish: partial[None]) -> None:
            number = op._next_data_task_idx
            task = self._tasks[number] = Task(finish.keywords["actor_to_return"], inputs, finish)

            def end_task() -> None:
                finish()
                del self._tasks[number]
                on_end(task)

            submit(gen, inputs, end_task)
            handed_on = op._data_tasks[number]._output_ready_callback

            def count_output(output: RefBundle) -> None:
                task.out += output.num_rows() or 0
                handed_on(output)

            op._data_tasks[number]._output_ready_callback = count_output

        op._submit_data_task = submit_task

    @property
    def is_waited_for(self) -> bool:
        """Return whether blocks wait for an actor."""
        queued = self._state.total_enqueued_input_blocks()
        return bool(queued or self._op._bundle_queue.has_next())

    @property
    def size(self) -> int:
        """Number of actors, including starting ones."""
        return len(self.nodes_by_actor()) + len(self.pending_actors())

    def grow(self, more: int) -> None:
        """Start ``more`` actors."""
        self._pool.scale(ActorPoolScalingRequest.upscale(delta=more, reason="room"))

    def nodes_by_actor(self) -> dict[Any, str]:
        """Return the node of each actor that has started, including actors that are restarting."""
        return {a: state.actor_location for a, state in self._pool._running_actors.items()}

    def pending_actors(self) -> list[Any]:
        """Return the actors that have not started yet."""
        return list(self._pool._pending_actors.values())

    def tasks_of(self, actor: Any) -> int:
        return sum(task.actor == actor for task in self._tasks.values())

    def requeue_tasks(self, actor: Any) -> None:
        """Forget the tasks of a lost actor. If a task has no output, queue its input again for
        other actors. Skip tasks whose output is being read; a later call forgets them."""
        op = self._op
        for number in [number for number, task in self._tasks.items() if task.actor == actor]:
            if op._data_tasks[number].has_pending_emits():
                continue
            task = self._tasks.pop(number)
            op._metrics.on_task_finished(number, RuntimeError("lost"), None, None)
            del op._data_tasks[number]
            op._output_queue.finalize(key=number)
            task.finish()
            if not task.out:
                self._queue(task.inputs)

    def queue(self, rows: pa.Table) -> None:
        """Queue ``rows`` as a block."""
        entry = BlockEntry(ray.put(rows), BlockAccessor.for_block(rows).get_metadata())
        self._queue(RefBundle((entry,), schema=rows.schema, owns_blocks=False))

    def _queue(self, inputs: RefBundle) -> None:
        self._op._bundle_queue.add(inputs)
        self._op._metrics.on_input_queued(inputs, input_index=0)

    def release(self, actor: Any) -> None:
        """Remove ``actor``, which has no tasks, from the pool."""
        self._pool._release_running_actor(actor)

    def withdraw(self, actor: Any) -> None:
        """Remove ``actor``, which has not started yet, from the pool."""
        # Ray Data removes the first of its pending actors, so move this actor there.
        pending = self._pool._pending_actors
        ordered = sorted(pending.items(), key=lambda entry: entry[1] != actor)
        pending.clear()
        pending.update(ordered)
        self._pool.scale(ActorPoolScalingRequest.downscale(delta=-1, reason="room", force=True))


def worker_log(pid: int) -> tuple[str, ...]:
    """Return the last `LOG_LINES` lines of the log of the actor with process id ``pid`` on this
    node: lines of its stdout, then lines of its stderr. Return () if there is no log."""
    if (node := ray._private.worker._global_node) is None:
        return ()
    tails = []
    for stream in ("out", "err"):
        lines: list[str] = []
        for path in Path(node.get_logs_dir_path()).glob(f"worker-*-{pid}.{stream}"):
            with suppress(OSError), path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - LOG_BYTES))
                lines = file.read().decode(errors="replace").splitlines()[-LOG_LINES:]
        tails.append([line[:LOG_CHARS] for line in lines])
    out, err = tails
    half = LOG_LINES // 2
    return (*out[-max(half, LOG_LINES - len(err)) :], *err[-max(half, LOG_LINES - len(out)) :])


def draining_nodes() -> Mapping[str, int]:
    """Return the deadlines of the draining nodes by node id (Unix time in ms; 0: no deadline)."""
    return dict(ray._private.state.state.get_draining_nodes())


def free_resources() -> Mapping[str, Mapping[str, float]]:
    """Return the free resources of each node, by node id."""
    return dict(ray._private.state.available_resources_per_node())


def is_alive(actor: Any) -> bool:
    return bool(actor._get_local_state() == ray.core.generated.gcs_pb2.ActorTableData.ALIVE)


def node_of(actor: Any) -> str | None:
    """Return the node id of an actor; None while the actor waits for a node."""
    node: str | None = ray._private.state.actors(id_of(actor)).get("Address", {}).get("NodeID")
    return node


def id_of(actor: Any) -> str:
    return str(actor._actor_id.hex())
