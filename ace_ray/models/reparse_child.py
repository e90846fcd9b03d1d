"""Parse stored answers again with vLLM's parsers, in a separate process.

``PYTHON -m ace_ray.models.reparse_child`` reads JSON lines: first the settings, then batches of
answers. It writes one line for each line that it reads: the version of vLLM and the parsers for
the settings, a list of readings for a batch. PYTHON may belong to an environment with another
vLLM."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import ace_ray
from ace_ray.errors import UserError
from ace_ray.models.answer_parser import Reading, parser_facts
from ace_ray.models.chat import PROBE_TOOLS
from ace_ray.models.families import FormatChoice
from ace_ray.models.sources import resolve, tokenizer_folder
from ace_ray.models.start_failure import root_cause
from ace_ray.storage.object_store import S3Store, Store
from ace_ray.types import ToolAnswer, ToolCall
from ace_ray.util.subprocesses import module_command, module_environment

READY = "ace_ray reading "
# Timeout of a batch of answers, and of the start of the process.
TIMEOUT_S = 600.0
# Chat of a sample prompt. Every prompt is assumed to end like it, e.g. with an open ``<think>``.
_CHAT = [{"role": "user", "content": "-"}]
_FIX = "name a Python with vLLM, such as /path/to/venv/bin/python"
TOKENIZER_FIX = "name the model, or a folder with its config and tokenizer, with --tokenizer"


@dataclass(frozen=True)
class StoredAnswer:
    """A stored answer: its complete text and, if known, tokens and offered tools (a JSON list)."""

    text: str
    token_ids: Sequence[int] | None = None
    tools: str | None = None


def tokenizer_of(source: str, opens: Callable[[str], Store]) -> Path:
    """Return a local folder with config and tokenizer of ``source``, the value of --tokenizer. (A
    stored run is untrusted, so its own model is not used.) Raises `UserError` if there is none."""
    if Path(source).is_dir():
        if not any(Path(source, name).is_file() for name in ("config.json", "params.json")):
            raise UserError("has no config.json", where=source, fix=TOKENIZER_FIX)
        return Path(source)
    options: dict[str, Any] = {"weights": False}
    if source.startswith("s3://") and isinstance(store := opens(source), S3Store):
        options |= {"endpoint_url": store.endpoint_url, "region": store.region}
    try:
        return tokenizer_folder(resolve(source, None, **options))
    except UserError as error:
        raise UserError(error.what, where=f"--tokenizer {source}", fix=TOKENIZER_FIX) from error


class AnswerParser:
    """Context manager that parses stored answers in a child process.

    Args:
        folder: model folder with config and tokenizer.
        choice: parsers and template to use now.
        earlier: tool parser and reasoning parser of the stored run.
        python: interpreter of the child; None: the current interpreter.

    Raises `UserError` if the child's Python lacks vLLM or a parser."""

    def __init__(
        self, folder: Path, choice: FormatChoice, earlier: FormatChoice, python: str | None = None
    ) -> None:
        command = module_command("ace_ray.models.reparse_child")
        command[0] = python or command[0]
        environment = {**module_environment(), "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
        self._location = command[0]
        # A folder with only this package. This environment's vLLM must not hide the other one's.
        self._path = tempfile.TemporaryDirectory()
        if python:
            Path(self._path.name, "ace_ray").symlink_to(Path(ace_ray.__file__).resolve().parent)
            paths = [self._path.name, *filter(None, [os.environ.get("PYTHONPATH")])]
            environment["PYTHONPATH"] = os.pathsep.join(paths)
        # A file, since vLLM writes more than a pipe holds.
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the child
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                env=environment,
                text=True,
            )
        except OSError as error:
            problem = f"cannot be run: {error.strerror}"
            raise UserError(problem, where=self._location, fix=_FIX) from error
        choices = {"choice": asdict(choice), "earlier": asdict(earlier)}
        self._settings = {"folder": str(folder), **choices}
        self.versions: dict[str, Any] = {}

    def __enter__(self) -> AnswerParser:
        self.versions = self._ask(self._settings)
        return self

    def __exit__(self, *_: object) -> None:
        self._child.kill()
        self._child.wait()
        self._log.close()
        self._path.cleanup()

    def read(self, answers: Sequence[StoredAnswer]) -> list[Reading]:
        """Return the reading of each answer. Never raises on any text."""
        readings = []
        for tree in self._ask([vars(answer) for answer in answers]):
            if tools := tree["tools"]:
                calls = tuple(ToolCall(**call) for call in tools["calls"])
                tools = ToolAnswer(tools["content"], calls, tools["error"])
            readings.append(Reading(tree["text"], tree["reasoning"], tree["truncated"], tools))
        return readings

    def _ask(self, message: Any) -> Any:
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        # A parser may hang on a hostile text. The kill ends the loop below.
        timer = threading.Timer(TIMEOUT_S, self._child.kill)
        timer.start()
        try:
            with suppress(BrokenPipeError):
                self._child.stdin.write(json.dumps(message) + "\n")
                self._child.stdin.flush()
            # vLLM prints to stdout as well.
            for line in self._child.stdout:
                if line.startswith(READY):
                    answer = json.loads(line[len(READY) :])
                    if "error" in answer:
                        raise UserError(**answer["error"])
                    return answer["result"]
        finally:
            timer.cancel()
        self._log.seek(0)
        lines = self._log.read().strip().splitlines() or ["the process ended without a message"]
        fix = _FIX
        if self._child.wait() == -signal.SIGKILL:
            lines = [f"a batch of answers took over {TIMEOUT_S:g} s, or the process was killed"]
            fix = "run it again on a machine with enough memory and without other load"
        raise UserError(f"cannot read answers: {lines[-1][:300]}", where=self._location, fix=fix)


class ChildParser:
    """Parses answers in the child process."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        assume_device()
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.renderers.registry import renderer_from_config

        from ace_ray.models.format import Format

        config = AsyncEngineArgs(model=settings["folder"]).create_engine_config()
        renderer = renderer_from_config(config)

        def form(tree: Mapping[str, Any]) -> Format:
            form_choice = FormatChoice(**{**tree, "plugins": tuple(map(tuple, tree["plugins"]))})
            return Format(config.model_config, renderer, form_choice)

        self._format = form(settings["choice"])
        self.choice = self._format.choice
        # Whether answers are decoded again, since the run decoded special tokens differently.
        self._decodes: dict[bool, bool] = {}
        self._bases: dict[bool, Any] = {}
        for offered in (False, True) if self.choice.tool_parser else (False,):
            tools = PROBE_TOOLS if offered else None
            base = asyncio.run(self._format.render(_CHAT, tools))
            self._bases[offered] = base
            self._decodes[offered] = False
            with suppress(UserError):  # the run's parser may be unknown to this vLLM
                earlier = asyncio.run(form(settings["earlier"]).render(_CHAT, tools))
                self._decodes[offered] = _has_marks(base) != _has_marks(earlier)
        self._prompt = lru_cache(1024)(self._prompt_of)

    def read(self, answer: Mapping[str, Any]) -> Reading:
        prompt = self._prompt(answer["tools"] if self.choice.tool_parser else None)
        ids = answer["token_ids"] or []
        text = answer["text"]
        if ids and self._decodes[bool(prompt.tools)]:
            tokenizer = self._format.tokenizer
            # Leave out the token that ended the answer.
            visible_ids = ids[:-1] if ids[-1] in tokenizer.all_special_ids else ids
            text = tokenizer.decode(visible_ids, skip_special_tokens=not _has_marks(prompt))
        return self._format.read(prompt, text, ids)

    def _prompt_of(self, tools: str | None) -> Any:
        """Return the sample prompt with ``tools``, a JSON list, in its request."""
        offered = json.loads(tools) if tools else None
        base = self._bases[bool(offered)]
        if not offered:
            return replace(base, tools=offered)
        typed = type(base.request)(messages=_CHAT, tools=offered).tools
        request = base.request.model_copy(update={"tools": typed})
        return replace(base, request=request, tools=offered)


def assume_device() -> None:
    """Let vLLM for GPUs start on a machine without one. Parsers need no device."""
    from vllm import platforms

    if not platforms.current_platform.device_type:
        from vllm.platforms.cpu import CpuPlatform

        platforms.current_platform = CpuPlatform()


def _has_marks(prompt: Any) -> bool:
    """Return whether answers to ``prompt`` keep special tokens in their text."""
    return prompt.request.skip_special_tokens is False


def _child_parser(settings: Mapping[str, Any]) -> ChildParser:
    try:
        return ChildParser(settings)
    except (UserError, ImportError):  # an ImportError means that this Python lacks vLLM
        raise
    except Exception as error:
        problem = f"the tokenizer cannot be used: {root_cause('', error)}"
        raise UserError(problem, where=str(settings["folder"]), fix=TOKENIZER_FIX) from error


def main() -> None:
    """Answer the requests of one `AnswerParser`, on stdin and stdout."""
    parser: ChildParser | None = None
    for line in sys.stdin:
        message = json.loads(line)
        try:
            if parser is None:
                parser = _child_parser(message)
                facts = parser_facts(parser.choice.tool_parser, parser.choice.vllm_reasoning_parser)
                result: Any = {n: facts[n] for n in ("vllm", "tool_parser", "reasoning_parser")}
            else:
                result = [parser.read(answer) for answer in message]
            answer = {"result": result}
        except UserError as error:
            answer = {"error": {"what": error.what, "where": error.where, "fix": error.fix}}
        # Faster than `asdict`, which copies every value.
        line = json.dumps(
            answer, default=lambda entry: {n: getattr(entry, n) for n in entry.__slots__}
        )
        print(READY + line, flush=True)


if __name__ == "__main__":
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    main()
