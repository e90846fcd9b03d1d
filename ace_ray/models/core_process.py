"""Start vLLM's engine core as a fork of a process that has imported vLLM already.

vLLM forks its core, but in a Ray actor, which must not be forked because of Ray's threads, vLLM
spawns it, and the core imports vLLM again after the actor. Here a fork server imports vLLM while
the actor imports it, and forks the core. The core starts its own workers as outside Ray: it forks
them, or spawns them on a CPU. All processes are in the actor's process group, which
`ace_ray.util.watchdog` ends."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Mapping
from multiprocessing import context, forkserver, popen_forkserver
from multiprocessing.connection import wait
from typing import Any

# Modules that an engine core imports before it knows the model; Ray's are those of the actor's
# ``__main__``, which multiprocessing imports in each child. None of them initialises CUDA.
MODULES = ["vllm.v1.engine.core", "vllm.v1.executor.multiproc_executor", "transformers", "ray"]
# vLLM's variable that selects a start method.
METHOD = "VLLM_WORKER_MULTIPROC_METHOD"
# Exit code of a core whose fork server has ended. The core itself may still run.
NO_SERVER = 255


class CorePopen(popen_forkserver.Popen):
    """The parent's side of a core. Several threads wait for it, but the fork server sends the exit
    code once."""

    def __init__(self, process: Any) -> None:
        self._lock = threading.Lock()
        super().__init__(process)

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        if self.returncode is None and wait([self.sentinel], 0 if flag == os.WNOHANG else None):
            with self._lock:
                super().poll()
        code: int | None = self.returncode
        return code


class CoreProcess(context.ForkServerProcess):
    """An engine core. It gets the environment that its parent has at the start of the core, in
    place of the fork server's."""

    @staticmethod
    def _Popen(process_obj: Any) -> CorePopen:
        return CorePopen(process_obj)

    def start(self) -> None:
        self._environment = dict(os.environ)
        super().start()

    def run(self) -> None:
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class CoreContext(context.ForkServerContext):
    """The ``multiprocessing`` context with which vLLM creates its cores."""

    Process = CoreProcess


def start_fork_server(engine_args: Mapping[str, Any]) -> bool:
    """Start the fork server of this process, and return without waiting for its imports.

    Return False if the cores must be spawned: by the user's choice of a method, since the core
    itself connects to Ray (vLLM's ``distributed_executor_backend: ray``), since vLLM starts it
    through numactl (``numa_bind``), or in WSL, whose NVML does not survive a fork."""
    connects = engine_args.get("distributed_executor_backend") == "ray"
    in_wsl = "microsoft" in platform.release().lower()
    if METHOD in os.environ or connects or engine_args.get("numa_bind") or in_wsl:
        return False
    forkserver.set_forkserver_preload(MODULES)
    forkserver.ensure_running()
    return True


def fork_cores() -> None:
    """Let vLLM create its cores in this process with `CoreContext`."""
    from vllm.v1.engine import utils

    utils.get_mp_context = CoreContext
