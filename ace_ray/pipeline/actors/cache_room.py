"""Estimate how many episodes fit into an engine's KV cache.

Each call of an episode extends the prompt of its last call. If too many episodes take turns, each
call finds its prefix evicted, and the engine computes the whole prompt again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ace_ray.types import Completion

# Tokens of a first prompt before any answer, and length of a last context in first prompts.
FIRST_TOKENS, GROWTH = 4000, 2.0
# Number of ended episodes that count as much as `GROWTH`, and maximum number that count.
WEIGHT, RECENT = 16, 64
# Tokens that an episode needs, as a share of its first and its last context together. Their mean,
# 0.5, is too little, since contexts of episodes that start together are long together.
NEEDED = 0.75
# An engine that has fewer requests than this, on average of some looks, is starved.
FEWEST_REQUESTS, LOOKS = 6, 5


class CacheContext:
    """The tokens of one episode in the cache, without prefixes that were there before it."""

    def __init__(self) -> None:
        # Tokens of the first prompt, and how many of them were cached.
        self.first: tuple[int, int] | None = None
        # Each role that the engine plays has prompts of its own.
        self._cached: dict[str, int] = {}
        self._tokens: dict[str, int] = {}

    @property
    def tokens(self) -> int:
        return sum(self._tokens.values())

    def add(self, role: str, answer: Completion) -> None:
        """Count an answer that the engine gave as ``role`` ("" for the candidate)."""
        cached = answer.engine.cached_tokens if answer.engine else 0
        self.first = self.first or (answer.prompt_tokens, cached)
        tokens = answer.prompt_tokens + answer.completion_tokens
        tokens -= self._cached.setdefault(role, cached)
        self._tokens[role] = max(tokens, self._tokens.get(role, 0))


class CacheRoom:
    """Tells whether more episodes fit into a cache of ``tokens`` tokens (0: always).

    ``requests`` returns the number of requests in the engine."""

    def __init__(self, tokens: int, requests: Callable[[], int] = lambda: 0) -> None:
        self._size, self._requests = tokens, requests
        self._open: set[CacheContext] = set()
        self._looks: deque[int] = deque(maxlen=LOOKS)
        self._ended: deque[CacheContext] = deque(maxlen=RECENT)

    def open(self) -> CacheContext:
        context = CacheContext()
        self._open.add(context)
        return context

    def close(self, context: CacheContext) -> None:
        """Count an episode that ends."""
        if context in self._open and context.first is not None:
            self._ended.append(context)
        self._open.discard(context)

    def look(self) -> None:
        """Note the number of requests, unless an open episode still awaits its first answer."""
        if all(context.first for context in self._open):
            self._looks.append(self._requests())

    def fits(self, episodes: int) -> bool:
        """Return whether ``episodes`` episodes fit, the open ones included. If the engine is
        starved, return True in any case, but then not again before `LOOKS` further looks."""
        if not self._size or self._needed(episodes) <= self._size:
            return True
        if len(self._looks) < LOOKS or sum(self._looks) >= FEWEST_REQUESTS * LOOKS:
            return False
        self._looks.clear()
        return True

    def _needed(self, episodes: int) -> float:
        firsts = [one.first for one in (*self._open, *self._ended) if one.first is not None]
        first, shared = float(FIRST_TOKENS), 0.0
        if firsts:
            first, shared = (sum(column) / len(firsts) for column in zip(*firsts, strict=True))
        last = WEIGHT * max(0.0, GROWTH * first - shared) + sum(one.tokens for one in self._ended)
        each = NEEDED * (first - shared + last / (WEIGHT + len(self._ended)))
        longer = sum(max(0.0, context.tokens - each) for context in self._open)
        return shared + episodes * each + longer
