"""A fake model without weights, for tests of the pipeline and its failures only.

``backend: fake`` selects it. ``engine`` then has the script in place of vLLM's arguments."""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import signal
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from ace_ray.config.schema import Section
from ace_ray.errors import EngineDead, PromptTooLong
from ace_ray.models.probe import TEXTS, Logprobs, weights_hash
from ace_ray.models.reasoning import split_think
from ace_ray.types import Completion, EngineFigures, Messages, Sampling, ToolAnswer, ToolCall, Tools


class FakeCall(Section):
    """A tool call that the fake model returns. ``arguments`` is JSON text, which may be invalid."""

    name: str
    arguments: str = "{}"


class SlowRows(Section):
    """Slow rows, like answers at a token limit. A fraction ``share`` of all rows has the mean
    delay multiplied by ``times``."""

    share: float = Field(ge=0, le=1)
    times: float = Field(ge=1)


Marked = dict[str, str]

SCRIPT = "fake.json"


class Repeat(Section):
    """A long answer: ``text`` is repeated ``times`` times."""

    text: str
    times: int = Field(ge=0)


class FakeScript(Section):
    """Script of the fake model. Entries of dicts apply if the last message contains their key."""

    default: str = "[]"
    replies: dict[str, str] = Field(default_factory=dict)
    calls: dict[str, list[FakeCall]] = Field(default_factory=dict)
    """calls to return beside the reply when tools are offered"""
    ready_file: str = ""
    """file without which the engine is not ready"""
    hold: Marked = Field(default_factory=dict)
    """marker files; the answer waits until the file exists"""
    delay_s: float = 0.0
    exponential: bool = False
    """vary delays like the lengths of real answers, with the mean `delay_s`"""
    slow: SlowRows | None = None
    """share of slow answers, and the factor on their `delay_s`"""
    cache_tokens: int = Field(0, ge=0)
    """size of the prefix cache; 0: none, and no figures of the engine"""
    swap: Literal["right", "stale", "dead", "nan"] = "right"
    """effect of a weight swap"""
    max_model_len: int = 1 << 20
    tensor_parallel_size: int = Field(1, ge=1)
    """GPUs to reserve without using them"""
    pipeline_parallel_size: int = Field(1, ge=1)
    fail: dict[str, str] = Field(default_factory=dict)
    """text of the RuntimeError to raise"""
    repeat: dict[str, Repeat] = Field(default_factory=dict)
    endless: list[str] = Field(default_factory=list)
    """never answers this text; other texts are answered"""
    # Faults, which occur once if the value names a marker file, and every time if it is "":
    fail_once: Marked = Field(default_factory=dict)
    """raise RuntimeError"""
    hang: Marked = Field(default_factory=dict)
    """stop answering all requests"""
    die: Marked = Field(default_factory=dict)
    """the engine dies"""
    crash: Marked = Field(default_factory=dict)
    """its process is killed"""
    abort: Marked = Field(default_factory=dict)
    """its process crashes"""


def count_words(messages: Messages, tools: Tools = None) -> int:
    """Count the words of a prompt, which are the tokens of the fake model."""
    return len(_words(messages, tools))


def _words(messages: Messages, tools: Tools) -> list[str]:
    texts = [*(tools or ()), *(message["content"] for message in messages)]
    return [word for text in texts for word in str(text).split()]


# Tokens of a block of the prefix cache, as in vLLM on a GPU.
BLOCK_TOKENS = 16


class PrefixCache:
    """A cache of ``tokens`` tokens, in blocks. The least recently used blocks are removed first."""

    def __init__(self, tokens: int) -> None:
        self._max_blocks = tokens // BLOCK_TOKENS
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def add(self, words: Sequence[str]) -> int:
        """Add a prompt. Return how many of its first tokens were in the cache."""
        prefix, cached, misses = 0, 0, False
        chain = []
        for start in range(0, len(words) - BLOCK_TOKENS + 1, BLOCK_TOKENS):
            prefix = hash((prefix, *words[start : start + BLOCK_TOKENS]))
            chain.append(prefix)
            misses = misses or prefix not in self._blocks
            cached += 0 if misses else BLOCK_TOKENS
        for block in reversed(chain):  # the end of a prompt goes before its beginning
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._max_blocks:
            self._blocks.popitem(last=False)
        return cached


class FakeEngine:
    """An engine that answers from its script. Token counts are word counts."""

    version = "fake"
    device = "fake"

    def __init__(self, script: Mapping[str, Any], folder: Path = Path()) -> None:
        self._config_script = dict(script)
        self._load(folder)
        self.max_model_len = self._script.max_model_len
        self.cache_tokens = self._script.cache_tokens
        self._cache = PrefixCache(self.cache_tokens)
        while self._script.ready_file and not Path(self._script.ready_file).exists():
            time.sleep(0.1)
        self._works = asyncio.Event()
        self._works.set()

    def _load(self, folder: Path) -> None:
        """Load a checkpoint: a file `SCRIPT` in ``folder`` overrides the script in the config."""
        file = folder / SCRIPT
        tree = json.loads(file.read_text()) if file.is_file() else {}
        self._script = FakeScript.model_validate({**self._config_script, **tree})
        self._weights = folder

    async def check_health(self) -> None:
        await self._works.wait()

    def processes(self) -> list[Any]:
        return []

    async def swap(self, folder: Path) -> None:
        stale = self._weights
        self._load(folder)
        if self._script.swap == "dead":
            raise EngineDead("scripted crash during a swap")
        if self._script.swap == "stale":
            self._weights = stale

    async def logprobs(self) -> Logprobs:
        return [[math.nan]] if self._script.swap == "nan" else _fake_logprobs(self._weights)

    async def token_logprobs(self, messages: Messages, text: str) -> list[float]:
        """Return made-up logprobs: longer words are less likely."""
        return [-len(word) / 4.0 for word in text.split()]

    def reference(self, folders: Sequence[Path]) -> list[Logprobs]:
        return [_fake_logprobs(folder) for folder in folders]

    async def chat(self, messages: Messages, sampling: Sampling, tools: Tools = None) -> Completion:
        script, last = self._script, str(messages[-1]["content"])
        words = count_words(messages, tools)
        if words >= script.max_model_len:
            raise PromptTooLong(
                f"the prompt has {words} tokens, but the context holds {script.max_model_len}"
            )
        cached = self._cache.add(_words(messages, tools)) if script.cache_tokens else 0
        if _fault_occurs(script.crash, last):
            os.kill(os.getpid(), signal.SIGKILL)
        if _fault_occurs(script.abort, last):
            os.abort()
        if _fault_occurs(script.die, last):
            raise EngineDead("told to die")
        if _fault_occurs(script.hang, last):
            self._works.clear()
        await self.check_health()
        if any(key in last for key in script.endless):
            await asyncio.Event().wait()
        hold_files = [file for key, file in script.hold.items() if key in last]
        while not all(Path(file).exists() for file in hold_files):
            await asyncio.sleep(0.1)
        seconds = _delay_s(script, last, sampling.seed)
        await asyncio.sleep(seconds)
        if _fault_occurs(script.fail_once, last):
            raise RuntimeError("told to fail")
        for key, text in script.fail.items():
            if key in last:
                raise RuntimeError(text)
        text = next((r for k, r in script.replies.items() if k in last), script.default)
        text = next((r.text * r.times for k, r in script.repeat.items() if k in last), text)
        split = split_think(text)
        calls = next((c for k, c in script.calls.items() if k in last), [])
        answer = ToolAnswer(split.answer, tuple(ToolCall(c.name, c.arguments) for c in calls))
        return Completion(
            text=split.answer,
            tools=None if tools is None else answer,
            reasoning=split.reasoning,
            reasoning_truncated=split.truncated,
            prompt_tokens=words,
            completion_tokens=len(text.split()),
            seconds=seconds,
            engine=EngineFigures(cached, seconds, 0.0) if script.cache_tokens else None,
            token_ids=[zlib.crc32(word.encode(errors="replace")) >> 1 for word in text.split()],
        )


def _fake_logprobs(folder: Path) -> Logprobs:
    """Return made-up logprobs that depend on the weight files in ``folder``."""
    return [[-int(weights_hash(folder)[:4], 16) / 4096.0] for _ in TEXTS]


def _delay_s(script: FakeScript, last: str, seed: int) -> float:
    """Return the delay of an answer, which depends on the question and the seed only."""
    draw = random.Random(f"{seed} {last}")
    times = draw.expovariate(1.0) if script.exponential else 1.0
    if script.slow is not None and draw.random() < script.slow.share:
        times = script.slow.times
    return script.delay_s * times


def _fault_occurs(script: Marked, last: str) -> bool:
    """Return whether a fault occurs, because ``last`` contains a key of ``script``. If the key's
    value names a marker file, create the file. While the file exists, the fault does not recur."""
    for key, marker in script.items():
        if key in last and not (marker and os.path.exists(marker)):
            if marker:
                open(marker, "w").close()
            return True
    return False
