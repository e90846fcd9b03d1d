"""ace_ray's wording of ACEBench's prompts for a single model call, English and Chinese.

The rules come from the official prompts (output format, optional parameters, the three messages
of the special categories); ace_ray wrote the sentences. ``{time}``, ``{profile}``, ``{function}``
and ``{question}`` are placeholders. Instructions come first, so that rows share a prompt prefix.

The instructions of native tool calling have the same rules. They contain neither functions nor a
call syntax, because the chat template adds both.
"""

from __future__ import annotations

_NORMAL_EN = """\
Turn a conversation into API calls. Read what the user and the assistant have said so far, look up \
the APIs listed below, and write the calls that the assistant makes next.

Reply with one bracketed list and no other text - no remark, no guess at what a call returns:
[ApiName(key1='value1', key2='value2')]

Rules:
- Spell API and parameter names as the list spells them and name every argument.
- Several calls go into the same list, separated by commas: \
[ApiOne(key1='value1'), ApiTwo(key1='value1', key2='value2')]
- A parameter counts as optional unless its description says otherwise. Pass it if the user \
mentioned it, leave it out if not.
- Keep the user's own text as the value, unless the description asks for a certain form.
- A call that needs no parameters is written [ApiName()]; never invent a parameter.

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

{time}

APIs:
{function}"""

_NORMAL_ZH = """\
把一段对话转换成API调用：先阅读用户与助手至今的对话，再查看下面列出的API，\
写出助手下一步要发出的调用。

只回复一个方括号列表，不写别的文字（不加说明，也不猜测调用的返回内容）：
[ApiName(key1='value1', key2='value2')]

规则：
- API名和参数名与列表中的写法保持一致，每个参数都要写出名称。
- 有多个调用时写在同一个列表里，用英文逗号分开：\
[ApiOne(key1='value1'), ApiTwo(key1='value1', key2='value2')]
- 参数描述没有另作规定的，一律视为可选：用户提到了就写上，没提到就省略。
- 参数描述没有规定写法的，直接采用用户的原话作为取值。
- 不需要参数的调用写成[ApiName()]，不得虚构参数。

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

{time}

可用API：
{function}"""

_CONDENSED_EN = """\
Read the conversation and the APIs below and write the API calls that the assistant makes next, \
as one bracketed list with real names and values: [ApiName(key1='value1', key2='value2')]. \
The reply begins with "[" and finishes with "]".

{time}

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

APIs:
{function}"""

_CONDENSED_ZH = """\
阅读对话和下面的API，写出助手下一步要发出的API调用，用真实的名称和取值组成一个方括号列表：\
[ApiName(key1='value1', key2='value2')]。回复的第一个字符是"["，最后一个字符是"]"。

{time}

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

可用API：
{function}"""

_MINIMAL_EN = """\
Conversation + APIs -> next calls. Format: [ApiName(key1='value1', key2='value2')]

{time}

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

APIs:
{function}"""

_MINIMAL_ZH = """\
对话+API→下一步调用。格式：[ApiName(key1='value1', key2='value2')]

{time}

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

API：
{function}"""

_PREFERENCE_EN = """\
Turn a conversation into API calls for a user whose profile you know. Read what the user and the \
assistant have said so far, look up the profile and the APIs below, and write the calls that the \
assistant makes next.

Reply with one bracketed list and no other text - no remark, no guess at what a call returns:
[ApiName(key1='value1', key2='value2')]

Rules:
- Spell API and parameter names as the list spells them and name every argument.
- Several calls go into the same list, separated by commas: \
[ApiOne(key1='value1'), ApiTwo(key1='value1', key2='value2')]
- A parameter counts as optional unless its description says otherwise. Pass it if the user \
mentioned it or the profile answers it, leave it out if neither does.
- Keep the text of the user or of the profile as the value, unless the description asks for a \
certain form.
- A call that needs no parameters is written [ApiName()]; never invent a parameter.

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

Profile of the user:
{profile}

APIs:
{function}"""

_PREFERENCE_ZH = """\
把一段对话转换成API调用，这位用户的画像是已知的：先阅读用户与助手至今的对话，\
再查看下面的画像和API，写出助手下一步要发出的调用。

只回复一个方括号列表，不写别的文字（不加说明，也不猜测调用的返回内容）：
[ApiName(key1='value1', key2='value2')]

规则：
- API名和参数名与列表中的写法保持一致，每个参数都要写出名称。
- 有多个调用时写在同一个列表里，用英文逗号分开：\
[ApiOne(key1='value1'), ApiTwo(key1='value1', key2='value2')]
- 参数描述没有另作规定的，一律视为可选：用户提到了或画像里有答案就写上，两处都没有就省略。
- 参数描述没有规定写法的，直接采用用户的原话或画像里的文字作为取值。
- 不需要参数的调用写成[ApiName()]，不得虚构参数。

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

用户画像：
{profile}

可用API：
{function}"""

_SPECIAL_EN = """\
Read what the user and the assistant have said so far and look up the APIs listed below. Then \
settle what the assistant does next: call APIs, or report why that is not possible. Go through \
the cases in this order and stop at the first that fits.

Case 1, a wrong value. The user stated the details an API wants, but the type or form of one of \
them is not what the API's definition allows. Report the value and the name of its parameter in \
the places of value and key:
["There is incorrect value (value) for the parameters (key) in the conversation history."]

Case 2, a gap. Details that an API requires were not stated. Report the names of all missing \
parameters and of the API：
["Missing necessary parameters (key1, key2) for the api (ApiName)"]

Case 3, out of reach. None of the APIs can do what the user wants. Report:
["Due to the limitations of the function, I cannot solve this problem."]

Case 4, all is clear. Write the calls of every API that serves the request as one bracketed list, \
and no other text:
[ApiOne(key1='value1'), ApiTwo(key1='value1', key2='value2')]
Keep the user's own text as the value, unless a description asks for a certain form.

Who speaks: "user" is the user, "assistant" or "system" is you.

{time}

APIs:
{function}"""

_SPECIAL_ZH = """\
阅读用户与助手至今的对话，并查看下面列出的API，然后决定助手下一步怎么做：发出API调用，\
或者报告为什么不能调用。按下列顺序逐一检查，遇到第一个符合的情形就停下。

情形1：取值有误。API想要的细节用户已经说了，但其中某一项的类型或形式不合API的定义。\
把该取值和参数名填到value和key的位置来报告：
["There is incorrect value (value) for the parameters (key) in the conversation history."]

情形2：信息有缺。API必需的细节用户没有说。报告全部缺少的参数名以及API名：
["Missing necessary parameters (key1, key2) for the api (ApiName)"]

情形3：无能为力。没有一个API能办到用户想要的事。报告：
["Due to the limitations of the function, I cannot solve this problem."]

情形4：一切清楚。把能满足请求的每个API的调用写成一个方括号列表，不写别的文字：
[ApiOne(key1='value1'), ApiTwo(key1='value1', key2='value2')]
参数描述没有规定写法的，直接采用用户的原话作为取值。

对话中的身份：user是用户，assistant或system是你。

{time}

可用API：
{function}"""

# The standard texts, under upstream's names.
OWN = {
    "SYSTEM_PROMPT_FOR_NORMAL_DATA_EN": _NORMAL_EN,
    "SYSTEM_PROMPT_FOR_PREFERENCE_DATA_EN": _PREFERENCE_EN,
    "SYSTEM_PROMPT_FOR_SPECIAL_DATA_EN": _SPECIAL_EN,
    "USER_PROMPT_EN": "Conversation so far:\n{question}",
    "SYSTEM_PROMPT_FOR_NORMAL_DATA_ZH": _NORMAL_ZH,
    "SYSTEM_PROMPT_FOR_PREFERENCE_DATA_ZH": _PREFERENCE_ZH,
    "SYSTEM_PROMPT_FOR_SPECIAL_DATA_ZH": _SPECIAL_ZH,
    "USER_PROMPT_ZH": "至今的对话：\n{question}",
}

# Shorter prompts of the normal categories, after the paper's appendix D.4.
NORMAL_VARIANTS = {
    "condensed": {
        "SYSTEM_PROMPT_FOR_NORMAL_DATA_EN": _CONDENSED_EN,
        "SYSTEM_PROMPT_FOR_NORMAL_DATA_ZH": _CONDENSED_ZH,
    },
    "minimal": {
        "SYSTEM_PROMPT_FOR_NORMAL_DATA_EN": _MINIMAL_EN,
        "SYSTEM_PROMPT_FOR_NORMAL_DATA_ZH": _MINIMAL_ZH,
    },
}


_NATIVE_NORMAL_EN = """\
Carry on a conversation by calling tools. Read what the user and the assistant have said so far \
and make the tool calls that the assistant makes next, all of them at once and without any text.

Rules:
- A parameter counts as optional unless its description says otherwise. Pass it if the user \
mentioned it, leave it out if not.
- Keep the user's own text as the value, unless the description asks for a certain form.
- Never invent a parameter.

Who speaks: "user" is the user, "assistant" or "system" is you, "tool" is the answer of a call.

{time}"""

_NATIVE_NORMAL_ZH = """\
通过调用工具把一段对话继续下去：先阅读用户与助手至今的对话，再一次性发出助手下一步要做的全部工具调用，\
不写任何文字。

规则：
- 参数描述没有另作规定的，一律视为可选：用户提到了就写上，没提到就省略。
- 参数描述没有规定写法的，直接采用用户的原话作为取值。
- 不得虚构参数。

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

{time}"""

_NATIVE_PREFERENCE_EN = """\
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

_NATIVE_PREFERENCE_ZH = """\
通过调用工具把一段对话继续下去，这位用户的画像是已知的：先阅读用户与助手至今的对话和下面的画像，\
再一次性发出助手下一步要做的全部工具调用，不写任何文字。

规则：
- 参数描述没有另作规定的，一律视为可选：用户提到了或画像里有答案就写上，两处都没有就省略。
- 参数描述没有规定写法的，直接采用用户的原话或画像里的文字作为取值。
- 不得虚构参数。

对话中的身份：user是用户，assistant或system是你，tool是调用的返回。

用户画像：
{profile}"""

_NATIVE_SPECIAL_EN = """\
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

_NATIVE_SPECIAL_ZH = """\
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

# Texts of native mode, under the same upstream names as `OWN`.
NATIVE = OWN | {
    "SYSTEM_PROMPT_FOR_NORMAL_DATA_EN": _NATIVE_NORMAL_EN,
    "SYSTEM_PROMPT_FOR_PREFERENCE_DATA_EN": _NATIVE_PREFERENCE_EN,
    "SYSTEM_PROMPT_FOR_SPECIAL_DATA_EN": _NATIVE_SPECIAL_EN,
    "SYSTEM_PROMPT_FOR_NORMAL_DATA_ZH": _NATIVE_NORMAL_ZH,
    "SYSTEM_PROMPT_FOR_PREFERENCE_DATA_ZH": _NATIVE_PREFERENCE_ZH,
    "SYSTEM_PROMPT_FOR_SPECIAL_DATA_ZH": _NATIVE_SPECIAL_ZH,
}
