"""Episodes on a simulated engine with a small KV cache: tokens computed, and seconds.

``python tests/pipeline/actors/test_kv_budget.py`` prints the table of perf/README.md. Cached
blocks are evicted as in vLLM: of the episode whose last call ended first, and its last tokens
first.
"""

from __future__ import annotations

import heapq
import random
from collections import OrderedDict
from dataclasses import dataclass, field
from itertools import product

import pytest

from ace_ray.pipeline.actors.kv_budget import CacheContext, KVBudget
from ace_ray.types import Completion, EngineFigures

EPISODES, CACHE, STEP_TOKENS, BLOCK = 64, 100_000, 8192, 16
FIRST, LAST, CALLS, ANSWER = 4000, 9500, 20, 100
# Prompt tokens that an engine computes in a second, and seconds of a step without them.
ENGINES = {"7B on an H100": (20_000.0, 0.01), "large model": (5_000.0, 0.03)}
TOOLS_S = (0.05, 0.5, 2.0, 8.0, 20.0)


@dataclass(eq=False)
class Call:
    """A call of an episode, which is ready at a time and then in the engine."""

    episode: int
    calls_left: int  # calls of the episode after this one
    prompt: float  # tokens
    growth: float  # tokens from one prompt to the next
    ready: float
    cached: int = 0
    to_compute: float = 0.0
    tokens: int = 0  # of the answer
    first_token_s: float = 0.0


@dataclass
class Simulation:
    speed: float
    step_s: float
    tools_s: float
    shared: int  # tokens at the beginning of all prompts
    cache: int = CACHE
    limited: bool = True
    now_s: float = 0.0
    computed: float = 0.0
    prefixes: OrderedDict[int, float] = field(default_factory=OrderedDict)
    running: list[Call] = field(default_factory=list)

    def run(self) -> Simulation:
        draw = random.Random(0)
        room = KVBudget(self.cache if self.limited else 0, lambda: self.now_s)
        contexts: dict[int, CacheContext] = {}
        pending = list(range(EPISODES))
        later: list[tuple[float, int, Call]] = []
        queue: list[Call] = []
        while pending or contexts:
            while pending and (not contexts or room.fits(len(contexts) + 1)):
                episode = pending.pop(0)
                contexts[episode] = room.open()
                calls = max(5, round(draw.gauss(CALLS, 4)))
                growth = (draw.gauss(LAST, 1000) - FIRST) / calls
                queue.append(Call(episode, calls - 1, FIRST, growth, self.now_s))
            while later and (later[0][0] <= self.now_s or not (self.running or queue)):
                self.now_s = max(self.now_s, later[0][0])
                queue.append(heapq.heappop(later)[2])
            while queue and self.start(queue[0]):
                del queue[0]
            for call in self.step():
                seconds = self.now_s - call.ready
                figures = EngineFigures(call.cached, call.first_token_s, seconds)
                prompt, context = int(call.prompt), contexts[call.episode]
                context.add(
                    "", Completion("", "", False, "stop", prompt, ANSWER, seconds, engine=figures)
                )
                if call.calls_left:
                    ready = self.now_s + draw.uniform(0.5, 1.5) * self.tools_s
                    then = Call(
                        call.episode,
                        call.calls_left - 1,
                        call.prompt + call.growth,
                        call.growth,
                        ready,
                    )
                    heapq.heappush(later, (ready, call.episode, then))
                else:
                    room.close(contexts.pop(call.episode))
        return self

    def start(self, call: Call) -> bool:
        """Give ``call`` its blocks, unless running calls hold them."""
        own_tokens = call.prompt - self.shared
        free = self.cache - self.shared - sum(c.prompt - self.shared + ANSWER for c in self.running)
        if own_tokens + ANSWER > free and self.running:
            return False
        hit_tokens = min(self.prefixes.pop(call.episode, 0), own_tokens)
        while self.prefixes and own_tokens + ANSWER + sum(self.prefixes.values()) > free:
            oldest = next(iter(self.prefixes))
            excess = own_tokens + ANSWER + sum(self.prefixes.values()) - free
            self.prefixes[oldest] -= min(excess, self.prefixes[oldest])
            if not self.prefixes[oldest]:
                del self.prefixes[oldest]
        # The first call computes what all share.
        shared_tokens = self.shared if self.computed else 0
        call.cached = shared_tokens + int(hit_tokens) // BLOCK * BLOCK
        call.to_compute = max(1, call.prompt - call.cached)
        self.computed += call.to_compute
        self.running.append(call)
        return True

    def step(self) -> list[Call]:
        """Compute the next tokens of the running calls; return the calls that end."""
        budget = float(STEP_TOKENS)
        for call in self.running:
            piece = min(call.to_compute, budget)
            call.to_compute -= piece
            budget -= piece
            call.tokens += not call.to_compute
        self.now_s += self.step_s + (STEP_TOKENS - budget) / self.speed
        for call in self.running:
            if call.tokens == 1:
                call.first_token_s = self.now_s - call.ready
        calls = [call for call in self.running if call.tokens == ANSWER]
        for call in calls:
            self.running.remove(call)
            self.prefixes[call.episode] = call.prompt - self.shared + ANSWER
            self.prefixes.move_to_end(call.episode)
        return calls


def simulate(engine: str, shared: int, tools_s: float) -> tuple[float, float, float, float]:
    """Return the computed tokens in multiples of an unlimited cache's, without and with a limit on
    episodes; then the seconds without and with it."""
    least = Simulation(*ENGINES[engine], tools_s, shared, 10**9).run().computed
    before = Simulation(*ENGINES[engine], tools_s, shared, limited=False).run()
    after = Simulation(*ENGINES[engine], tools_s, shared).run()
    return before.computed / least, after.computed / least, before.now_s, after.now_s


@pytest.mark.parametrize("engine", ENGINES)
def test_contexts_stay_cached_unless_slow_tools_leave_time(engine: str) -> None:
    for shared, tools_s in product((FIRST, 0), TOOLS_S):
        _, computed, seconds_before, seconds = simulate(engine, shared, tools_s)
        assert tools_s > 2 or computed <= 1.1, (shared, tools_s)
        assert seconds <= 1.15 * seconds_before, (shared, tools_s)


if __name__ == "__main__":
    for case in product(ENGINES, (FIRST, 0), TOOLS_S):
        before, after, seconds_before, seconds = simulate(*case)
        prompt = "shared" if case[1] else "own"
        print(f"| {case[0]} | {prompt} | {case[2]:g} | {before:.1f} | {after:.1f} | ", end="")
        print(f"{seconds_before:,.0f} | {seconds:,.0f} |")
