"""What the agent is told: our own wording, and how official wording takes its place.

Placeholders are in braces and filled with `str.replace`, because the values come from data and
models. The words that parsers and answers depend on (``Thought:``, ``Action:``, ``Action Input:``,
``Finish``, ``return_type``, ``give_answer``, ``give_up_and_restart``) are upstream's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from ace_ray.errors import UserError
from ace_ray.records import digest


@dataclass(frozen=True, slots=True)
class Texts:
    """Every sentence an agent sees that is not the query's, its tools' or an API's."""

    source: str
    """``own`` or ``upstream``."""
    system: str
    """With ``{task_description}``."""
    user: str
    """With ``{input_description}``, the query."""
    task: str
    """Opens the task description; one line a tool follows."""
    function: str
    """Opens a function's description, with ``{tool}``."""
    function_says: str
    """Follows it where the API has a description, with ``{description}``."""
    finish: str
    """The description of Finish."""
    finish_answer: str
    """The description of its parameter ``final_answer``."""
    diversity: str
    """Asks for another action than before, with ``{previous_candidate}``."""
    last_observation: str
    """Follows the former actions in it, with ``{observation}``."""
    react_after: str
    """The sentence of ``system`` that the ReAct form continues; "" puts it at the end."""
    react: str
    """The ReAct form's format, in place of ``react_after``."""
    react_tools: str
    """Opens the list of functions, in the ReAct form."""
    no_function: str
    """Observation: no function has the name ``{name}``."""
    no_return_type: str
    no_final_answer: str
    bad_return_type: str
    """Observations of Finish, as are the two that follow."""
    gave_up: str
    answered: str

    def sha256(self) -> str:
        return digest(asdict(self))


OWN = Texts(
    source="own",
    system="""\
You solve a task for a user with the help of functions that call web APIs.
Work in rounds. In each round write down briefly (five sentences at most) what the situation is \
and what you will do, and then call a function. You are shown what it returned, and the next round \
begins. Go on until you can answer, then hand your answer over.
- What a call has changed stays changed; to begin anew you have to give up and restart.
- A plan with several attempts may take several rounds, one attempt each.
{task_description}""",
    user="{input_description}",
    task="""\
The task: answer a user's request with the functions below.
- Every piece of work ends with a call of Finish. The user sees nothing but its final_answer, \
so put all that they asked for in there. If the request cannot be met, or the functions keep \
failing, call Finish with return_type give_up_and_restart.
- Call functions by their full names; the names of tools alone cannot be called.
The tools that the functions belong to:
""",
    function='A function of the tool "{tool}". ',
    function_says='It is described as: "{description}"',
    finish="""\
Ends the work. Call it with return_type give_answer and the complete final_answer once you can \
answer the request: the user is shown that text only. Call it with return_type \
give_up_and_restart when there is no way forward from here.""",
    finish_answer="The answer for the user; needed when return_type is give_answer.",
    diversity="""\
You were at this point before, and what you did then did not lead to an answer. These were your \
actions here:
{previous_candidate}
Think about why they failed, and do something that differs from every one of them.""",
    last_observation="The observation that had led you here: {observation}\n",
    react_after="",
    react="""
Write every round in exactly this form:
Thought: what the situation is and what you will do
Action: the name of one function
Action Input: its arguments as a JSON object
Stop there: the observation is given to you.
""",
    react_tools="\nThe functions, with their parameters: ",
    no_function='{"error": "there is no function {name}", "response": ""}',
    no_return_type='{"error": "Finish needs return_type"}',
    no_final_answer='{"error": "return_type give_answer needs final_answer"}',
    bad_return_type='{"error": "return_type is neither give_answer nor give_up_and_restart"}',
    gave_up='{"response": "the attempt was given up"}',
    answered='{"response": "the answer was handed over"}',
)
"""The texts that ship with ace_ray."""

GO_ON = "Go on: call a function, or Finish."
"""Under ``fixed`` the answer to a message without a call; upstream says nothing."""


def texts_from(values: Mapping[str, Any], where: str) -> Texts:
    """Official texts by field name. Raises `UserError` when one is missing or no text."""
    fields = {}
    for name in Texts.__dataclass_fields__:
        value = "upstream" if name == "source" else values.get(name)
        if not isinstance(value, str):
            raise UserError(f"the text {name!r} is missing", where=where)
        fields[name] = value
    return Texts(**fields)
