"""Servers for the models of roles: vLLM's OpenAI server as a child process of a Ray actor."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ace_ray.cluster.resources import gpus_per_worker
from ace_ray.config.schema import EndpointConfig
from ace_ray.errors import UserError
from ace_ray.models.cpu_environment import cpu_environment
from ace_ray.models.roles import ServedRole
from ace_ray.models.sources import ModelRef, materialize
from ace_ray.models.start_failure import MOST_BYTES, first_error, tail
from ace_ray.pipeline.server_auth import KEY_ENV, RequireKey
from ace_ray.util import log
from ace_ray.util.subprocesses import end_with_this_process, module_command, module_environment

# Logical CPUs of one server.
SERVER_CPUS = 1.0
# Timeout of a start: fetching and loading the weights of a large model takes minutes.
LOAD_S = 1800.0
# Timeout of one request, including its time in the queue.
REQUEST_S = 300.0
# Time for a server to end after SIGTERM.
GRACE_S = 15.0
# Seconds between two health checks of a starting server.
POLL_S = 0.25
# Number of lines of a server's log that a message quotes.
TAIL_LINES = 6


class ServerFailed(Exception):
    """Raised if a server fails to start. The message is one line, with the cause from the log."""


@dataclass(frozen=True)
class Starting:
    """A server that is starting. Only the driver has this object."""

    actor: Any
    outcome: Any
    """ObjectRef of (URL, failure)."""


def start_server(
    role: ServedRole, ref: ModelRef, engine: Mapping[str, Any], *, key: str, on_gpu: bool
) -> Starting:
    """Start one server of a role's model on the cluster. Returns at once; `url` waits for it.

    Args:
        role: the role, with its chat template's settings and its parsers, none of them ``auto``.
        ref: the model, with a fixed revision.
        engine: ``role.engine``, adapted to the cluster (`cluster_engine_args`).
        key: API key that clients must send.
        on_gpu: whether the engine takes GPUs.
    """
    import ray

    actor = ray.remote(EngineServer).options(
        num_cpus=SERVER_CPUS,
        num_gpus=gpus_per_worker(dict(engine)) if on_gpu else 0,
        max_restarts=0,
        # `stop` must work while `start` waits for the server.
        max_concurrency=2,
    )
    handle = actor.remote(role, ref, dict(engine), key)
    # Begin the start now, so that several servers and the candidate's engines load in parallel.
    return Starting(handle, handle.start.remote())


def url(server: Starting) -> str:
    """Wait until the server answers, and return its URL.

    Raises:
        ServerFailed: the server failed to start, or was not ready within `LOAD_S`.
    """
    import ray

    try:
        address, failure = ray.get(server.outcome, timeout=LOAD_S)
    except ray.exceptions.GetTimeoutError as error:
        raise ServerFailed(f"no server of this role was ready within {LOAD_S:g} s") from error
    except ray.exceptions.RayError as error:
        line = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise ServerFailed(f"the actor of this role's server is gone: {line}") from error
    if failure:
        raise ServerFailed(failure)
    return str(address)


def stop(servers: Sequence[Starting]) -> None:
    """Stop the servers, and kill their actors."""
    import ray

    with suppress(ray.exceptions.RayError):  # an actor is gone already
        ray.get([server.actor.stop.remote() for server in servers], timeout=2 * GRACE_S)
    for server in servers:
        ray.kill(server.actor)


def endpoint(ref: ModelRef, at: str) -> EndpointConfig:
    """Return the endpoint config for the server of the model ``ref`` at the URL ``at``. An
    `EndpointModel` with this config needs the server's key and ``in_cluster=True``."""
    return EndpointConfig(
        url=at,
        model=ref.name,
        api_key_env=None,
        timeout_s=REQUEST_S,
        max_retries=2,
        max_concurrency=256,
    )


class EngineServer:
    """Ray actor that runs one server and reserves its CPUs and GPUs."""

    def __init__(self, role: ServedRole, ref: ModelRef, engine: dict[str, Any], key: str) -> None:
        self._role, self._ref, self._engine, self._key = role, ref, engine, key
        self._server: Server | None = None

    def start(self) -> tuple[str, str]:
        """Load and serve the model. Return (URL, "") when the server is ready, or ("", failure)."""
        try:
            return self._start(), ""
        except (ServerFailed, UserError) as error:
            return "", str(error)
        # For an exception Ray would send a traceback as text; the driver needs one line.
        except Exception as error:  # noqa: BLE001
            return "", " ".join(f"{type(error).__name__}: {error}".split())

    def _start(self) -> str:
        import ray

        folder = materialize(self._ref)
        host = ray.util.get_node_ip_address()
        port = free_port(host)
        # The server and its engine processes must end whenever this actor ends.
        end_with_this_process()
        self._server = server = Server(
            command(folder, self._role, self._engine, name=self._ref.name, host=host, port=port),
            environment(self._key),
            host=host,
            port=port,
        )
        server.start(LOAD_S)
        threading.Thread(target=self._watch, args=(server,), daemon=True).start()
        return f"http://{host}:{port}/v1"

    def _watch(self, server: Server) -> None:
        if failure := server.wait():
            # Do not start the server again: while it loads, its clients' circuit breakers would
            # fail all rows. The next pass starts new servers.
            log.say(log.error(failure))
            os._exit(1)  # frees the GPUs

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()


class Server:
    """A process of vLLM's server. It ends when its parent ends, if the parent has called
    `end_with_this_process`."""

    def __init__(
        self, command: Sequence[str], env: Mapping[str, str], *, host: str, port: int
    ) -> None:
        self._command, self._env = list(command), module_environment(env)
        self._host, self._port = host, port
        handle, name = tempfile.mkstemp(prefix="ace_ray-server-", suffix=".log")
        os.close(handle)
        # Log file of the server. `stop` removes the file; after a failure it stays.
        self.log = Path(name)
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, deadline_s: float) -> None:
        """Start the server and wait until ``/health`` returns status 200.

        Raises:
            ServerFailed: the server ended, or was not ready within ``deadline_s``.
        """
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=self._env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        limit = time.monotonic() + deadline_s
        while not self._is_healthy():
            if (code := self._process.poll()) is not None:
                what = f"the server ended with exit code {code} before it was ready"
                raise ServerFailed(self._report(what, starting=True))
            if time.monotonic() > limit:
                what = f"the server was not ready in {deadline_s:g} s"
                raise ServerFailed(self._report(what, starting=True))
            time.sleep(POLL_S)

    def wait(self) -> str:
        """Wait until the server ends. Return the reason; "" if `stop` has ended it."""
        assert self._process is not None
        code = self._process.wait()
        return "" if self._stopping else self._report(f"the server ended with exit code {code}")

    def stop(self) -> None:
        """Send SIGTERM to the server; vLLM then also ends its engine processes. Kill the server if
        it has not ended after `GRACE_S`."""
        self._stopping = True
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
            self._process.kill()
            self._process.wait()
        self.log.unlink(missing_ok=True)

    def _is_healthy(self) -> bool:
        # Do not use urllib, which would send the request to the environment's proxy.
        connection = http.client.HTTPConnection(self._host, self._port, timeout=5)
        try:
            connection.request("GET", "/health")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def _report(self, what: str, *, starting: bool = False) -> str:
        """Return ``what`` with the cause from the log and the path of the log."""
        with suppress(FileNotFoundError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - MOST_BYTES))
            text = file.read(MOST_BYTES).decode("utf-8", "replace")
            # Use the first error only at the start: later the log also has errors of requests.
            cause = first_error(text) if starting else ""
            said = cause or tail(text, TAIL_LINES)
            return f"{what}: {said} (full log: {socket.gethostname()}:{self.log})"
        return what


def free_port(host: str) -> int:
    """Return a TCP port of ``host`` that is free now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def command(
    folder: Path,
    role: ServedRole,
    engine: Mapping[str, Any],
    *,
    name: str,
    host: str,
    port: int,
) -> list[str]:
    """Return the command line of vLLM's OpenAI server for the model in ``folder``.

    Sampling defaults and statistics are set as for the candidate's engine. The command line does
    not contain the key, since all users of the machine can read it."""
    # `vllm serve` needs package metadata named "vllm", which the CPU build lacks.
    start = module_command("vllm.entrypoints.openai.api_server")
    defaults = {"disable_log_stats": True, "generation_config": "vllm"}
    ours = [f"--model={folder}", "--served-model-name", name, f"--host={host}", f"--port={port}"]
    reasoning = role.model.reasoning_parser
    if reasoning not in ("auto", "none"):
        ours.append(f"--reasoning-parser={reasoning}")
    if role.model.tool_parser is not None:
        ours += ["--enable-auto-tool-choice", f"--tool-call-parser={role.model.tool_parser}"]
    if role.model.chat_template_kwargs:
        kwargs = json.dumps(role.model.chat_template_kwargs)
        ours.append(f"--default-chat-template-kwargs={kwargs}")
    ours += [f"--middleware={RequireKey.__module__}.{RequireKey.__name__}"]
    return [*start, *flags({**defaults, **engine}), *ours, "--disable-uvicorn-access-log"]


def flags(engine: Mapping[str, Any]) -> list[str]:
    """Return engine arguments as options of vLLM's command line. Arguments that are None are left
    out, so that vLLM's defaults apply."""
    arguments = []
    for name, value in engine.items():
        flag = "--" + name.replace("_", "-")
        match value:
            case None:
                pass
            case True:
                arguments.append(flag)
            case False:
                arguments.append("--no-" + flag.removeprefix("--"))
            case list():
                arguments += [flag, *map(_text, value)]
            case _:
                # Write "=", so that a value may begin with a dash.
                arguments.append(f"{flag}={_text(value)}")
    return arguments


def environment(key: str) -> dict[str, str]:
    """Return the environment variables of a server that requires ``key``."""
    return {
        "VLLM_NO_USAGE_STATS": "1",
        **os.environ,
        **cpu_environment(),
        KEY_ENV: key,
    }


def _text(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict | list) else str(value)
