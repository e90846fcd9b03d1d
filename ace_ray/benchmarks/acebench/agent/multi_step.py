"""agent_multi_step: the agent works alone; every message of it goes to execution."""

from __future__ import annotations

from ace_ray.benchmarks.acebench.agent.play import Play


async def multi_step(play: Play, language: str) -> str:
    """Plays the episode to its end and returns why it ended: "finished" or "max_messages".

    ``language`` is that of the agent's prompt. Under ``official`` the agent never sees its own
    messages. Raises `Cut`.
    """
    history = f"user:{play.entry.data['question']}\n"
    for index in range(0, play.max_messages, 2):
        text, calls = await play.ask_agent(history, language)
        if not play.official:
            history += f"agent:{text}\n"
        # A call is a call under "fixed", whatever else the message says.
        if (play.official or calls is None) and play.finished(index, text):
            return "finished"
        if index + 1 == play.max_messages:
            break
        answer = play.refuse(text) if calls is None else await play.execute(text, calls)
        history += f"execution result:{answer}\n"
        if play.official and play.finished(index + 1, answer):
            return "finished"
    return "max_messages"
