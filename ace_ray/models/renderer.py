"""Chat templates are programs of the model's makers: they run in a process with limits.

Jinja's sandbox keeps a template from reaching Python, and bounds neither time nor memory. The child
that renders has a limit of the kernel for each: CPU time per text, and memory beside what it takes
by itself. A template that finds a way out of the sandbox finds a process without keys that opens no
file, no socket and no process any more. Pipes carry one request at a time, as JSON behind its
length.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import IO, Any, BinaryIO

from ace_ray.children import confine, module_command, module_environment
from ace_ray.credentials import is_secret_name

CPU_S = 10.0
"""Of the child, per text; a long prompt takes some milliseconds."""
WALL_S = 120.0
"""For a child that does not get the CPU, or waits for something."""
MEMORY_BYTES = 512 << 20
MOST_CHARS = 16 << 20
MOST_TEMPLATE_CHARS = 128 << 10
"""Of a template that vLLM looks at in its own process; the longest known have 30 kB."""
MOST_ASSIGNMENTS = 100_000
STRIKES = 3
"""Broken limits after which a template is not tried again."""

_HEAD = struct.Struct("<Q")
_WARM_UP = "{{ strftime_now('%Y') }}{{ tools | tojson }}{{ raise_exception('x') }}"


class RenderFailed(Exception):
    """The template raised, or broke a limit; says why."""


class Renderer:
    """Renders texts in a child, which is started when the first is asked for. Threads share it.

    ``date``, as 2025-08-05, is the day that templates are told; "": today.
    """

    def __init__(self, date: str = "") -> None:
        self._date = date
        self._lock = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._strikes = 0
        self._last = ""

    def __getstate__(self) -> dict[str, Any]:
        return {"date": self._date}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["date"])  # type: ignore[misc]

    def begin(self) -> None:
        """Start the child, which imports for a second or two, beside what is done before the first
        text."""
        with self._lock:
            if self._child is None:
                self._child = _started()

    def render(self, template: str, variables: Mapping[str, Any]) -> str:
        """The text of ``template`` with JSON values as ``variables``. Raises `RenderFailed`."""
        return self._answered({"template": template, "variables": variables})

    def check(self, template: str) -> None:
        """Compile ``template`` and look up its variables, as vLLM does in its own process: both
        compute constant expressions, which may be endless. Raises `RenderFailed`."""
        self._answered({"template": template})

    def _answered(self, asked: Mapping[str, Any]) -> str:
        asked = {**asked, "date": self._date, "cpu_s": CPU_S}
        request = json.dumps(asked, default=str).encode()
        with self._lock:
            if self._strikes >= STRIKES:
                raise RenderFailed(f"it broke its limits {STRIKES} times, at last: {self._last}")
            answer = self._asked(request)
        if "text" in answer:
            return str(answer["text"])
        raise RenderFailed(str(answer.get("error", "it gave no text"))[:2000])

    def close(self) -> None:
        """End the child, if there is one."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for pipe in (child.stdin, child.stdout):
                assert pipe is not None  # both are pipes
                pipe.close()

    __del__ = close

    def _asked(self, request: bytes, *, again: bool = False) -> dict[str, Any]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            self._child = _started()
        try:
            return _exchange(self._child, request)
        except (OSError, ValueError) as error:
            late = isinstance(error, TimeoutError)
            code = None if late else _end_of(self._child)
            self.close()
            if not late and code != -signal.SIGPROF and not again:
                return self._asked(request, again=True)  # it may have been ended from outside
            why = f"its process ended with {code}" if again else f"it took more than {WALL_S:g} s"
            if code == -signal.SIGPROF:
                why = f"it took more than {CPU_S:g} s of CPU time"
            self._strikes, self._last = self._strikes + 1, why
            raise RenderFailed(why) from error


def _started() -> subprocess.Popen[bytes]:
    # Until it is confined, which is before it reads the first template, this is what it has.
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("AWS_") and not is_secret_name(name)
    }
    return subprocess.Popen(
        module_command("ace_ray.models.renderer"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**module_environment(environment), "TRANSFORMERS_VERBOSITY": "error"},
        cwd="/",
        # Ctrl-C is for the driver.
        start_new_session=True,
    )


def _exchange(child: subprocess.Popen[bytes], request: bytes) -> dict[str, Any]:
    assert child.stdin is not None  # pipes, as it was started
    assert child.stdout is not None
    until = time.monotonic() + WALL_S
    child.stdin.write(_HEAD.pack(len(request)) + request)
    child.stdin.flush()
    (length,) = _HEAD.unpack(_read(child.stdout, _HEAD.size, until))
    # A character may be an escape of six, or two of them.
    if length > 12 * MOST_CHARS + 4096:
        raise ValueError("the answer is too long")
    answer = json.loads(_read(child.stdout, length, until))
    if not isinstance(answer, dict):
        raise ValueError("no answer")
    return answer


def _read(pipe: IO[bytes], size: int, until: float) -> bytes:
    content = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(content) < size:
        if not poll.poll(max(0.0, 1000 * (until - time.monotonic()))):
            raise TimeoutError
        chunk = os.read(pipe.fileno(), min(1 << 20, size - len(content)))
        if not chunk:
            raise ValueError("the pipe ended")
        content += chunk
    return bytes(content)


def _end_of(child: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a child that has ended; None where it has not."""
    try:
        return child.wait(timeout=10)
    except subprocess.TimeoutExpired:
        return None


def serve(source: BinaryIO, target: BinaryIO) -> None:
    """Answer requests until ``source`` ends. Runs in the child."""
    from transformers.utils.chat_template_utils import render_jinja_template

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Whatever the libraries import when they are first asked, they import now.
    _rendered(
        render_jinja_template, {"template": _WARM_UP, "variables": {"messages": [], "tools": []}}
    )
    _compiled(_WARM_UP)
    limit = _own_bytes() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    confine()
    while head := source.read(_HEAD.size):
        request = json.loads(source.read(*_HEAD.unpack(head)))
        # Its default action ends the process, whatever that is at.
        signal.setitimer(signal.ITIMER_PROF, request["cpu_s"])
        answer = _rendered(render_jinja_template, request)
        content = json.dumps(answer).encode()
        signal.setitimer(signal.ITIMER_PROF, 0)
        target.write(_HEAD.pack(len(content)) + content)
        target.flush()


def _rendered(render: Any, request: Mapping[str, Any]) -> dict[str, str]:
    try:
        if "variables" not in request:
            return {"text": _compiled(request["template"])}
        variables = dict(request["variables"])
        messages: Sequence[Any] = variables.pop("messages")
        if date := request.get("date"):
            variables["strftime_now"] = datetime.fromisoformat(date).strftime
        (text,), _ = render([messages], chat_template=request["template"], **variables)
        if len(text) > MOST_CHARS:
            return {"error": f"it made {len(text)} characters, more than {MOST_CHARS}"}
    except MemoryError:
        return {"error": f"it took more than {MEMORY_BYTES >> 20} MiB of memory"}
    # A template is foreign code: whatever it raises counts as a refusal.
    except Exception as error:  # noqa: BLE001 - it is told, not handled
        return {"error": str(error)[:2000] or type(error).__name__}
    return {"text": text}


def _compiled(template: str) -> str:
    """The variables of ``template``, after all that vLLM does to it in a process without limits."""
    from jinja2 import meta, nodes
    from transformers.utils import chat_template_utils

    if len(template) > MOST_TEMPLATE_CHARS:
        raise ValueError(f"it has {len(template)} characters, more than {MOST_TEMPLATE_CHARS}")
    swallowed = []

    class Impossible(nodes.Impossible):
        """Raised where an expression is not constant; also where it is, and too large here."""

        def __init__(self) -> None:
            if isinstance(sys.exc_info()[1], MemoryError | OverflowError):
                swallowed.append(sys.exc_info()[1])

    theirs, nodes.Impossible = nodes.Impossible, Impossible  # type: ignore[misc, assignment]
    try:
        environment = chat_template_utils._compile_jinja_template(template).environment
        tree = environment.parse(template)
        variables = meta.find_undeclared_variables(tree)
    finally:
        nodes.Impossible = theirs  # type: ignore[misc]
    if swallowed:
        raise MemoryError
    _check_assignments(tree)
    return " ".join(sorted(variables))


def _check_assignments(tree: Any) -> None:
    """vLLM follows what ``messages`` is assigned to, and notices no circle."""
    from jinja2 import nodes

    assigned = [
        (name, node.target.name)
        for node in tree.find_all(nodes.Assign)
        if isinstance(node.target, nodes.Name) and (name := _assigned_from(node.node))
    ]
    names, steps = ["messages"], 0
    while names:
        name = names.pop()
        for source, target in assigned:
            steps += 1
            if source == name and target != name:
                names.append(target)
        if steps > MOST_ASSIGNMENTS:
            raise ValueError("it assigns its messages to variables in a circle")


def _assigned_from(node: Any) -> str:
    from jinja2 import nodes

    while isinstance(node, nodes.Filter | nodes.Test) or (
        isinstance(node, nodes.Getitem) and isinstance(node.arg, nodes.Slice)
    ):
        node = node.node
    return node.name if isinstance(node, nodes.Name) else ""


def _own_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    # What a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
