"""The instructions of native tool calling: no list of functions and no call syntax, which are the
chat template's. The rules are those of the prompt mode, the sentences ours (see `texts`)."""

from __future__ import annotations

_NORMAL_EN = """\
Carry on a conversation by calling tools. Read what the user and the assistant have said so far \
and make the tool calls that the assistant makes next, all of them at once and without any text.

Rules:
- A parameter counts as optional unless its description says otherwise. Pass it if the user \
mentioned it, leave it out if not.
- Keep the user's own text as the value, unless the description asks for a certain form.
- Never invent a parameter.

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

{time}"""

_NORMAL_ZH = """\
通过调用工具把一段对话继续下去：先阅读用户与助手至今的对话，再一次性发出助手下一步要做的全部工具调用，\
不写任何文字。

规则：
- 参数描述没有另作规定的，一律视为可选：用户提到了就写上，没提到就省略。
- 参数描述没有规定写法的，直接采用用户的原话作为取值。
- 不得虚构参数。

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

{time}"""

_PREFERENCE_EN = """\
Carry on a conversation by calling tools, for a user whose profile you know. Read what the user \
and the assistant have said so far and make the tool calls that the assistant makes next, all of \
them at once and without any text.

Rules:
- A parameter counts as optional unless its description says otherwise. Pass it if the user \
mentioned it or the profile answers it, leave it out if neither does.
- Keep the text of the user or of the profile as the value, unless the description asks for a \
certain form.
- Never invent a parameter.

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

Profile of the user:
{profile}"""

_PREFERENCE_ZH = """\
通过调用工具把一段对话继续下去，这位用户的画像是已知的：先阅读用户与助手至今的对话和下面的画像，\
再一次性发出助手下一步要做的全部工具调用，不写任何文字。

规则：
- 参数描述没有另作规定的，一律视为可选：用户提到了或画像里有答案就写上，两处都没有就省略。
- 参数描述没有规定写法的，直接采用用户的原话或画像里的文字作为取值。
- 不得虚构参数。

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

用户画像：
{profile}"""

_SPECIAL_EN = """\
Read what the user and the assistant have said so far and look at your tools. Then settle what the \
assistant does next: call tools, or report in words why that is not possible. Go through the cases \
in this order and stop at the first that fits.

Case 1, a wrong value. The user stated the details a tool wants, but the type or form of one of \
them is not what the tool's definition allows. Call nothing and report the value and the name of \
its parameter in the places of value and key:
There is incorrect value (value) for the parameters (key) in the conversation history.

Case 2, a gap. Details that a tool requires were not stated. Call nothing and report the names of \
all missing parameters and of the tool:
Missing necessary parameters (key1, key2) for the api (ToolName)

Case 3, out of reach. None of the tools can do what the user wants. Call nothing and report:
Due to the limitations of the function, I cannot solve this problem.

Case 4, all is clear. Call every tool that serves the request, all at once and without any text. \
Keep the user's own text as the value, unless a description asks for a certain form.

Who speaks: "user" is the user, "assistant" or "system" is you.

{time}"""

_SPECIAL_ZH = """\
阅读用户与助手至今的对话，并查看你的工具，然后决定助手下一步怎么做：调用工具，或者用文字报告为什么不能调用。\
按下列顺序逐一检查，遇到第一个符合的情形就停下。

情形1：取值有误。工具想要的细节用户已经说了，但其中某一项的类型或形式不合工具的定义。\
不要调用工具，把该取值和参数名填到value和key的位置来报告：
There is incorrect value (value) for the parameters (key) in the conversation history.

情形2：信息有缺。工具必需的细节用户没有说。不要调用工具，报告全部缺少的参数名以及工具名：
Missing necessary parameters (key1, key2) for the api (ToolName)

情形3：无能为力。没有一个工具能办到用户想要的事。不要调用工具，报告：
Due to the limitations of the function, I cannot solve this problem.

情形4：一切清楚。一次性调用能满足请求的每个工具，不写任何文字。\
参数描述没有规定写法的，直接采用用户的原话作为取值。

对话中的身份：user是用户，assistant或system是你。

{time}"""

NATIVE = {
    "SYSTEM_PROMPT_FOR_NORMAL_DATA_EN": _NORMAL_EN,
    "SYSTEM_PROMPT_FOR_PREFERENCE_DATA_EN": _PREFERENCE_EN,
    "SYSTEM_PROMPT_FOR_SPECIAL_DATA_EN": _SPECIAL_EN,
    "USER_PROMPT_EN": "Conversation so far:\n{question}",
    "SYSTEM_PROMPT_FOR_NORMAL_DATA_ZH": _NORMAL_ZH,
    "SYSTEM_PROMPT_FOR_PREFERENCE_DATA_ZH": _PREFERENCE_ZH,
    "SYSTEM_PROMPT_FOR_SPECIAL_DATA_ZH": _SPECIAL_ZH,
    "USER_PROMPT_ZH": "至今的对话：\n{question}",
}
"""Under upstream's names, as `texts.OWN`."""
