"""Estimate how many episodes fit into an engine's KV cache.

Each call of an episode extends the prompt of its last call. If too many episodes take turns, each
call finds its prefix evicted, and the engine computes the whole prompt again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from statistics import fmean

from ace_ray.types import Completion

# Assumed before any episode ends: tokens of a first prompt; last context per first prompt.
FIRST_TOKENS, GROWTH = 4000, 2.0
# Number of ended episodes that weigh as much as the assumed `GROWTH`, and maximum that count.
WEIGHT, RECENT = 16, 64
# Tokens that an episode needs, as a share of its first and its last context together. Their mean,
# 0.5, is too little, since contexts of episodes that start together are long together.
NEEDED = 0.85
# Episodes that pause long (slow tools) are limited only if the engine would need more than this
# share of the time of a pause and a prompt to compute all prompts again. More than 1, since the
# time to decode answers is not counted. Simulated in tests/pipeline/actors/test_kv_budget.py.
COMPUTED_AGAIN = 1.3
# Minimum number of pauses for a mean. Minimum number of uncached tokens with which a prompt shows
# how fast the engine computes prompts.
FEWEST_PAUSES, TELLING_TOKENS = 8, 256


class CacheContext:
    """The tokens of one episode in the cache, without prefixes that were cached before it began."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        # Tokens of the first prompt (0 before its answer), and how many of them were cached.
        self.first_tokens, self.shared_tokens = 0, 0
        # Number of pauses between calls, and their seconds.
        self.pauses, self.paused_s = 0, 0.0
        # Most prompt tokens that the engine computed in a second.
        self.speed = 0.0
        self._clock = clock
        self._answered_at: float | None = None
        # Each role that the engine plays has prompts of its own.
        self._cached: dict[str, int] = {}
        self._tokens: dict[str, int] = {}

    @property
    def tokens(self) -> int:
        return sum(self._tokens.values())

    def add(self, role: str, answer: Completion) -> None:
        """Count an answer that the engine gave as ``role`` ("" for the candidate)."""
        cached = answer.engine.cached_tokens if answer.engine else 0
        if not self.first_tokens:
            self.first_tokens, self.shared_tokens = answer.prompt_tokens, cached
        tokens = answer.prompt_tokens + answer.completion_tokens
        tokens -= self._cached.setdefault(role, cached)
        self._tokens[role] = max(tokens, self._tokens.get(role, 0))
        if self._answered_at is not None:
            self.pauses += 1
            self.paused_s += max(0.0, self._clock() - answer.seconds - self._answered_at)
        self._answered_at = self._clock()
        computed = answer.prompt_tokens - cached
        if answer.engine and answer.engine.first_token_s > 0 and computed >= TELLING_TOKENS:
            self.speed = max(self.speed, computed / answer.engine.first_token_s)


class KVBudget:
    """Decides whether more episodes fit into a cache of ``tokens`` tokens (0: they always fit)."""

    def __init__(self, tokens: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._size, self._clock = tokens, clock
        self._open: set[CacheContext] = set()
        self._recent: deque[CacheContext] = deque(maxlen=RECENT)

    def open(self) -> CacheContext:
        context = CacheContext(self._clock)
        self._open.add(context)
        return context

    def close(self, context: CacheContext) -> None:
        """Note that the episode of ``context`` has ended."""
        if context in self._open and context.first_tokens:
            self._recent.append(context)
        self._open.discard(context)

    def fits(self, episodes: int) -> bool:
        """Return whether ``episodes`` episodes, open ones included, fit into the cache, or pause so
        long that the engine has the time to compute all their prompts again."""
        if not self._size:
            return True
        contexts = [context for context in (*self._open, *self._recent) if context.first_tokens]
        first, shared = float(FIRST_TOKENS), 0.0
        if contexts:
            first = fmean(context.first_tokens for context in contexts)
            shared = fmean(context.shared_tokens for context in contexts)
        # Tokens that an episode adds to the shared part of its first prompt, at first and at last.
        own_first, own_last = first - shared, WEIGHT * max(0.0, GROWTH * first - shared)
        own_last += sum(context.tokens for context in self._recent)
        own_last /= WEIGHT + len(self._recent)
        needed = NEEDED * (own_first + own_last)
        longer = sum(max(0.0, context.tokens - needed) for context in self._open)
        if shared + episodes * needed + longer <= self._size:
            return True
        pauses = sum(context.pauses for context in contexts)
        speed = max((context.speed for context in contexts), default=0.0)
        if pauses < FEWEST_PAUSES or not speed:
            return False
        computing_s = (own_first + own_last) / 2 / speed
        pause_s = sum(context.paused_s for context in contexts) / pauses
        return episodes * computing_s <= COMPUTED_AGAIN * (computing_s + pause_s)
