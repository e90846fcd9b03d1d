"""An agent's episode from its query to what is stored of it."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ace_ray.benchmarks.context import EpisodeContext, Truncated
from ace_ray.benchmarks.stabletoolbench.agent.chain import chains
from ace_ray.benchmarks.stabletoolbench.agent.dfs import Search
from ace_ray.benchmarks.stabletoolbench.agent.rollout import Caller, Rollout
from ace_ray.benchmarks.stabletoolbench.agent.settings import Settings
from ace_ray.benchmarks.stabletoolbench.agent.tree import ANSWERED, Message, Node, Tree
from ace_ray.benchmarks.stabletoolbench.tools import GIVE_ANSWER, GIVE_UP, Api
from ace_ray.records import Entry

ENDINGS = (
    "answered",
    "gave_up",
    "max_steps",
    "max_queries",
    "exhausted",
    "context",
    "deadline",
)


@dataclass(frozen=True)
class AgentRun:
    """What happened, as JSON values.

    ``tries`` holds ``{"win", "nodes"}`` per attempt (a tree search has one): all nodes in order,
    each ``{type, parent, depth, description, pruned, terminal, finished, expanded}`` with
    ``observation``, ``code``, ``source``, ``reasoning``, ``finish_reason``, ``tokens``, ``answer``
    where they have them; ``parent`` is an index, the root (index 0) has none.
    ``final`` is ``{"return_type", "answer", "raw"}``: ``raw`` is the text of Finish's arguments,
    which upstream's judges are shown; None when the agent did not finish. A tree search without an
    answer ends in one of its give-ups, if there is one; a chain's give-up is no answer to upstream
    and ``final`` only says so (``valid`` is false).
    ``messages`` is the chat of the chain that counts, in OpenAI's form, [] where none does;
    ``calls`` are ``{"name", "tool", "api", "arguments", "code", "source", "error", "origin",
    "failure", "try", "node"}``, without those of Finish; tool and api are None for a function that
    does not exist. ``ended`` is one of `ENDINGS`.
    """

    method: str
    form: str
    rules: str
    win: bool
    valid: bool
    finish_type: str
    final: dict[str, str] | None
    ended: str
    query_count: int
    total_tokens: int
    prompt_tokens: int
    completion_tokens: int
    generation_s: float
    dropped_calls: int
    tries: list[dict[str, Any]]
    calls: list[dict[str, Any]]
    messages: list[Message]
    output: str
    """The last reply as the model wrote it."""
    finish_reason: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


async def run_agent(
    entry: Entry,
    context: EpisodeContext,
    settings: Settings,
    apis: Sequence[Api],
    caller: Caller,
) -> AgentRun:
    """Let the candidate work on ``entry`` with ``apis``, whose calls ``caller`` answers.

    An episode that is truncated by its deadline or the context keeps what it has reached. Raises
    `RowError` when it could not be had: the engine or who answers for the APIs is gone.
    """
    rollout = Rollout(entry, context, settings, apis, caller)
    search = Search(rollout) if settings.width else None
    try:
        ended = await (search.run() if search else chains(rollout))
    except Truncated as truncated:
        ended = truncated.reason
    return _result(rollout, ended, search.gave_up if search else [])


def _result(rollout: Rollout, ended: str, gave_up: Sequence[Node]) -> AgentRun:
    chosen = _answered(rollout)
    answered = chosen is not None
    finish_type = "give_answer" if answered else ""
    if chosen is None and gave_up:
        # Upstream draws one too; ours is the same whenever the entry is evaluated.
        chosen = random.Random(rollout.entry.content_hash()).choice(gave_up)
        finish_type = "give_up"
    settings, last, used = rollout.settings, rollout.last, rollout.context.episode
    return AgentRun(
        method=settings.method,
        form=settings.form,
        rules=settings.rules,
        win=any(_wins(tree) for tree in rollout.trees),
        valid=chosen is not None,
        finish_type=finish_type,
        final=_final(chosen, answered, ended),
        ended=ended,
        query_count=used.model_calls,
        total_tokens=used.prompt_tokens + used.completion_tokens,
        prompt_tokens=used.prompt_tokens,
        completion_tokens=used.completion_tokens,
        generation_s=round(used.generation_s, 4),
        dropped_calls=rollout.dropped_calls,
        tries=[{"win": _wins(tree), "nodes": tree.as_json()} for tree in rollout.trees],
        calls=rollout.calls,
        messages=chosen.messages if chosen is not None else [],
        output=last.text if last else "",
        finish_reason=last.finish_reason if last else "",
    )


def _wins(tree: Tree) -> bool:
    """Upstream's word for a chain that ends after an answer, even if a give-up followed."""
    return any(node.terminal and not node.children for node in tree.nodes)


def _answered(rollout: Rollout) -> Node | None:
    """The node at which the chain ends that gave the answer."""
    leaves = (node for tree in rollout.trees for node in tree.nodes if not node.children)
    return next((node for node in leaves if node.terminal and not node.pruned), None)


def _final(chosen: Node | None, answered: bool, ended: str) -> dict[str, str] | None:
    if chosen is None:
        return {"return_type": GIVE_UP, "answer": "", "raw": ""} if ended == "gave_up" else None
    if not answered:
        return {"return_type": GIVE_UP, "answer": "", "raw": chosen.description}
    finish = next(node for node in chosen.path() if node.code == ANSWERED)
    # Under ``official`` calls that follow Finish in its reply run on, and the last one's arguments
    # stand where the answer's should.
    return {
        "return_type": GIVE_ANSWER,
        "answer": finish.note["answer"],
        "raw": chosen.description,
    }
