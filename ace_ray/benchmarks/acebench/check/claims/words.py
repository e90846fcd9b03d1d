"""The words by which a message says what is missing, wrong or out of reach, in two languages.

All patterns are for folded text (`text`): ASCII in lower case, punctuation of half width. Their
quantifiers are bounded, so that a search costs no more than the text's length.
"""

from __future__ import annotations

import re

MISSING = re.compile(
    r"\b(?:missing|lack(?:s|ing|ed)?|absent|omitted|left out)\b"
    r"|(?:\bnot|n't)\s(?:been\s)?(?:provided?|given?|specif(?:y|ied)|suppl(?:y|ied)|stated?"
    r"|mention(?:ed)?)\b"
    r"|缺少|缺失|缺乏|欠缺|遗漏|漏掉|漏了|少了|不完整|(?:没有|没|未|尚未|并未)(?:被)?(?:提供"
    r"|给出|指定|说明|填写)",
    re.ASCII,
)
WRONG = re.compile(
    r"\b(?:incorrect|wrong|invalid|illegal|malformed|improper|erroneous|inaccurate)\b(?!\s(?:to"
    r"|that)\b)"
    r"|\b(?:is|are|was|were)(?:\snot|n't)\s(?:a\s)?(?:valid|correct|legal|acceptable|right)\b"
    r"|\b(?:does|do|did)(?:\snot|n't)\s(?:match|fit|conform|comply)\b"
    r"|不正确|不合法|不合规|不规范|不符合|不匹配|不对(?!起)|错误|有误|无效|非法|有问题",
    re.ASCII,
)
_TOOLS = r"(?:functions?|apis?|tools?|capabilit(?:y|ies)|abilit(?:y|ies)|functionalit(?:y|ies))"
_TASK = (
    r"(?:solve|solving|resolve|fulfill?|complete|handle|answer|address|process|accomplish|satisfy|"
    r"tackle|perform|carry\sout|help|assist|deal\swith|do)\b"
)
_THIS = (
    r"(?:this|the|your|that|such\sa|it)\b(?:\s(?:\w{1,20}\s){0,2}"
    r"(?:problem|request|question|task|query|issue|need)s?\b)?"
)
LIMITS = re.compile(
    r"\b(?:limitations?|limits?|restrictions?|constraints?)\s(?:of|in|on|with)\s"
    rf"(?:\w{{1,20}}\s){{0,4}}{_TOOLS}\b"
    rf"|\b{_TOOLS}\s(?:limitations?|limits|restrictions|constraints)\b"
    rf"|\b(?:beyond|exceed(?:s|ed|ing)?|outside(?:\sof)?|out\sof)\s(?:\w{{1,20}}\s){{0,5}}(?:{_TOOLS}"
    rf"|scope)\b"
    rf"|\b(?:none\sof|no)\s(?:\w{{1,20}}\s){{0,4}}{_TOOLS}\s(?:can|could"
    r"|(?:is|are)(?!\s(?:needed|required|necessary)\b)|fits?"
    rf"|match(?:es)?|"
    r"supports?|exists?|applies|suits?|to)\b"
    r"|(?:函数|功能|接口|api|工具|能力)[^,.;。]{0,12}?(?:限制|局限|不足|有限)"
    r"|(?:超出|超过|超越)[^,;。]{0,24}?(?:能力|范围|功能|限制)"
    r"|(?:没有|无)[^,;。]{0,8}?(?:合适|可用|相关|适合|对应|匹配)的?(?:函数|接口|api|工具)",
    re.ASCII,
)
LIMITATION = re.compile(
    r"\b(?:limitations?|limits?|restrictions?|constraints?)\b|限制|局限|不足|有限", re.ASCII
)
# No function does it: none is there, or those that are there do something else.
_NOT = r"(?:(?:can\s?|(?:do|does|did|is|are|was|were)\s)not|(?:ca|do|does|did|is|are|was|were)n't)"
LACKS = re.compile(
    r"(?<!need\s)(?<!needs\s)(?<!require\s)(?<!requires\s)(?<!use\s)(?<!used\s)"
    r"(?:\b(?:no|none\sof|neither\sof|lack(?:s|ing)?)|(?:\bnot|n't)\s(?:\w{1,20}\s){0,2}?"
    r"(?:have(?!\sto\b)|find|possess|see|contain|include|offer|equipped\swith|provided\swith"
    r"|(?<=re\sis\snot\s)an?|(?<=re\sisn't\s)an?|given|aware\sof|related\sto|relevant\sto|supported\sby|covered\sby|match|fit))"
    rf"\s(?:\w{{1,20}}\s){{0,4}}?{_TOOLS}\b(?!\s(?:\w{{1,20}}\s)?(?:calls?|name|parameters?|key"
    r"|needed|required|necessary|was|were)\b)"
    rf"|\b{_TOOLS}\s(?:\w{{1,20}},?\s){{0,6}}?{_NOT}\s(?:\w{{1,20}}\s){{0,3}}?"
    r"(?:used\s(?:to|for)|support|cover|include|contain|offer|provide|allow|handle|match|fit|apply"
    r"|suit|solve|help|fulfill?|perform|do\b|relate|relevant|sufficient|applicable|able|enough"
    r"|designed|capable|meant|intended|have\b)"
    rf"|\b{_TOOLS}\s(?:\w{{1,20}},?\s){{0,6}}?(?:(?:is|are)\s(?:insufficient|irrelevant|unsuitable"
    r"|unrelated|inadequate|limited)|only\s(?:support|cover|handle|deal|provide|offer|relate))"
    r"|\bonly\s(?:have|has)\s(?:\w{1,20}\s){0,3}?" + _TOOLS + r"\b"
    r"|(?<!您)(?<!你)(?<!用户)(?:没有|不具备|缺乏|缺少|找不到|未找到|未提供|不存在|无)"
    r"(?!使用|调用|用到|必要|需要)[^,:;。]{0,24}?(?:函数|接口|api|工具|功能|能力)"
    r"(?!\s{0,3}(?:所需|需要|要求|的?参数|缺少|缺失))"
    r"|(?:函数|功能|接口|api|工具|能力)[^,:;。]{0,16}?(?:不支持|无法(?!调用|执行|继续)"
    r"|不能(?!调用|执行|继续|为空)|不足以|没有(?!缺少|被?提供|给出|参数)|不具备|不包含|不包括"
    r"|不提供|不涉及|不适用|不适合|无关|不匹配|不相关|不符合)",
    re.ASCII,
)
UNABLE = re.compile(
    r"\b(?:can\s?not|can't|unable\sto|not\sable\sto|incapable\sof|could\s?not|couldn't|"
    r"impossible\s(?:for\s(?:me|us)\s)?to|not\spossible\s(?:for\s(?:me|us)\s)?to"
    r"|no\sway\s(?:for\sme\s)?to)\s"
    rf"(?:\w{{1,20}}\s){{0,2}}?{_TASK}(?:\s(?:you\s)?(?:with\s|to\s)?{_THIS})?"
    r"|\b(?:problem|request|question|task|query|issue|need)s?\s(?:\w{1,20}\s){0,3}?(?:can\s?not"
    r"|can't|could\s?not|couldn't)\sbe\s(?:\w{1,20}\s)?(?:solved|resolved|fulfilled|handled|processed"
    r"|completed|answered|accomplished|satisfied|addressed|performed|done|met)\b"
    r"|(?:无法|不能(?!不)|没法|没有?办法|无力|难以|未能|不足以|不可能(?!无法|不能"
    r"|没))[^,;。]{0,16}?"
    r"(?:解决|完成|处理|满足|回答|实现|执行|帮助|协助|办到)[^,;。]{0,20}?(?:问题|请求|任务|需求"
    r"|要求|此事|这件事|它)"
    r"|(?:问题|请求|任务|需求|要求)(?:(?!不是|并非)[^,;。]){0,10}?(?:无法|不能(?!不)|没法|没有?办法)[^,;。]{0,8}?"
    r"(?:解决|完成|处理|满足|回答|实现|执行)",
    re.ASCII,
)
ABLE = re.compile(
    rf"\b(?:i|we)\s(?:can|could|am\sable\sto"
    rf"|are\sable\sto)\s(?!not\b)(?:\w{{1,20}}\s){{0,2}}?{_TASK}\s(?:you\swith\s)?{_THIS}"
    r"|\b(?:i|we)\scan\s{0,3}(?:[.:;!]|$)"
    r"|(?<![不无])(?:可以|能够)[^,;。]{0,8}?(?:解决|完成|处理|满足|回答"
    r"|实现)(?:(?!其他|其它|别的|另)[^,;。]){0,10}?(?:问题|请求|任务|需求|要求)",
    re.ASCII,
)
BECAUSE = re.compile(
    r"\b(?:due\sto|because\sof|owing\sto|given|on\saccount\sof|as\sa\sresult\sof|there\s(?:is"
    r"|are|were)|"
    r"by|is|are|exceeds?|it's|have|has)\b|由于|因为|因|鉴于|受|受到|超",
    re.ASCII,
)

# Roles: what a field in parentheses or quotes is.
ROLE = re.compile(
    r"\b(?P<value>values?)\b|\b(?P<param>parameters?|params?|arguments?)\b|\b(?P<api>apis?"
    r"|functions?|tools?)\b"
    r"|(?P<zvalue>取值|参数值|(?<!数)值)|(?P<zparam>参数)|(?P<zapi>接口|函数|工具)",
    re.ASCII,
)

# Denial. A plain negation reaches to the end of its clause, a denial of what follows further.
_NOT_NEGATION = re.compile(
    r"\bno\s(?:doubt|question)\b|\bwithout\s(?:a\s|any\s)?doubt\b|\bno\smatter\b|\bnot\sonly\b"
    r"|\bneither\b(?=.{0,300}\bnor\b)|\bno\sproblem\b(?=\s{0,3}[,.:!])"
    r"|\bnot\s(?:sure|certain|clear)\b|\bno[,.:!]|\bcannot\shelp\sbut\b|\bi\scan(?:not"
    r"|'t)\sgo\son\b"
    r"|对不起|不好意思|不过|不仅|不但|不管|不论|无论|不得不|不妨|不同|不足|非常|未来|毫无疑问"
    r"|无疑|不断|不久"
    r"|不知道|不确定|不清楚|差不多|无意|没关系|没问题|是非|并非常",
    re.ASCII,
)
NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|nobody|nowhere|zero|neither|nor|without|hardly|cannot)\b|n't\b"
    r"|并没有|并不是|并不存在|没有|不存在|不是|不可能|不会|不能|从未|从不|绝不|绝非|决不|并非"
    r"|并不|并未|未发现|未见|未|没|无|不|非",
    re.ASCII,
)
DENIAL = re.compile(
    r"(?:\b(?:not|never)|n't)\s(?:\w{1,20}\s){0,2}?(?:(?:true|the\scase|correct|right|accurate"
    r"|fair)\b(?!\s{0,3}:)|say(?:ing)?|said|"
    r"claim(?:ing|ed)?|suggest(?:ing)?|mean(?:ing)?|think|believe|agree|answer|write|output|"
    r"reply|respond|tell(?:ing)?|report)\b"
    r"|\b(?:false|untrue|wrong|incorrect|mistaken|misleading|a\s(?:\w{1,20}\s)?mistake|a\slie)\s(?:to|that)\b"
    r"|\b(?:den(?:y|ies|ied|ying)|doubts?|doubted|disagrees?|refus(?:e|ed|ing)\sto\s(?:say"
    r"|claim)|far\sfrom|"
    r"rather\sthan|instead\sof)\b"
    r"|\bno\s(?:such\sthing\sas|evidence|sign|indication|reason|proof|need\sto)\b"
    r"|(?:不|没|没有|并不|从不|绝不|不会|不能|不要|别)(?:认为|觉得|说(?!明)|是说|同意|相信|回答"
    r"|输出|声称|表示)"
    r"|否认|谎称|误称|误认为|错误地(?:认为|说|指出)",
    re.ASCII,
)
AFTER_DENIAL = re.compile(
    r"\b(?:is|are|was|were|does|do|did|would\sbe|would|has|have|can|should)(?:\s?n't|\snot"
    r"|\snever)\b"
    r"|\b(?:is|are|was|were|would\sbe)\s(?:false|untrue|wrong|a\slie|nonsense|a\smistake"
    r"|out\sof\sthe\squestion)\b|\bnowhere\b"
    r"|(?:说法|情况|问题|结论|说|讲|这|这句话)?(?:是|并|都|也)?"
    r"(?:不对|不成立|不存在|不属实|不正确|不准确|错误|错|假|不是事实|不是真|没有发生"
    r"|没有)的?(?:事|说法)?"
    r"[\s\"'”」。.!?\]]{0,5}$",
    re.ASCII,
)
NONE = re.compile(
    r"^[^.!?,;]{0,80}(?::|\bis|\bare)\s{0,3}(?:none|nothing|no|n/a)[\W_]{0,9}$"
    r"|:\s{0,3}(?:无|没有)(?:$|[,。\s])",
    re.ASCII,
)
RESOLVED = re.compile(
    r"\bno\slonger\b|\b(?:has|have)\s(?:\w{1,20}\s)?been\s(?:\w{1,20}\s)?(?:fixed|corrected"
    r"|provided|resolved|given|supplied)\b"
    r"|\b(?:is|are)\s(?:now|already)\s(?:fixed|corrected|provided|resolved|given|supplied|there"
    r"|present|valid)\b"
    r"|已经?(?:被)?(?:提供|补充|补全|补齐|修正|更正|改正|解决|给出)|不再(?:缺|存在|有|是)",
    re.ASCII,
)

# What leaves a claim open: conditions, possibilities, questions, examples, words of others.
OPEN = re.compile(
    r"\bshould\s(?:i|you|we|they|it|this)\b|"
    r"\b(?:if|whether|unless|suppos(?:e|ing)|assum(?:e|ing)|in\scase|perhaps|maybe|possibl[ye]"
    r"|probably|"
    r"hypothetical(?:ly)?|imagine|pretend|not\s(?:sure|certain|clear)|unsure|unclear|uncertain"
    r"|wonder(?:ing)?|"
    r"for\s(?:example|instance)|e\.g\.|i\.e\.|such\sas|example|template|output\sformat|"
    r"when(?:ever)?\sthere|according\sto\s(?:you|him|her|them|some|the\suser)|were\sthere|had\sthere|should\sthere|suspect|guess|i\s(?:\w{1,20}\s)?(?:thought|assumed|believed)|at\sfirst|let\sus\ssay|let's\ssay|say\sthat\sif)\b"
    r"|\b(?:may|might|could)\s(?:well\s|also\s|still\s|then\s|possibly\s)?(?:be|have|lack"
    r"|contain|need|include|say|answer|reply)\b"
    r"|\b(?:would|should|must|shall|(?:going|about|supposed|tempted|like|want|wants|wanted|have"
    r"|has|had|need|told|asked|"
    r"instructed|allowed|required)\s(?:me\s)?to|asks?\sme\sto)\s(?:then\s|only\s|just\s"
    r"|usually\s|normally\s)?"
    r"(?:be|have|say|output|answer|mean|mention|report|reply|respond|write|print|tell)\b"
    r"|\b(?:phrase|sentence|wording|words|quote|quoted)\b"
    r"|如果|假如|假设|假使|若(?!干)|要是|倘若|万一|除非|(?<!不)可能|也许|或许|大概|说不定|是否"
    r"|不确定|不清楚|不知道|是不是|"
    r"有没有|会不会|例如|比如|譬如|即使|就算|示例|模板|输出格式|难道|怀疑|猜测|应该(?:说|回答"
    r"|输出)|应当(?:说|回答|输出)"
    r"|(?:这句话|这个短语|句子|短语|这几个字)",
    re.ASCII,
)
# The words of others reach further where they are introduced by "that".
REPORT = re.compile(
    r"(?<!\bi\s)\b(?:tells?|told)\s(?:me|us|him|her|them|you)\b|"
    r"\b(?:user|you|he|she|they|someone|somebody|some|people|anyone|everybody|everyone|assistant|agent|bot|system"
    r"|documentation|"
    r"docs?|prompt|manual|instructions?|rules?|colleague|model|models)\s(?:\w{1,20}\s)?"
    r"(?:said|says?|claims?|claimed|thinks?|thought|asks?(?!\sfor)|asked(?!\sfor)|wrote|writes?|believes?|believed"
    r"|stated?|states|"
    r"answers?|answered|repl(?:y|ies|ied)|reports?|reported|reads?|complain(?:s|ed)?|told)\b"
    r"|(?:用户|你|您|他|她|他们|有人|别人|系统|文档|说明|提示|助手|模型"
    r"|同事)[^,。;]{0,6}?(?:说(?!明)|认为|声称|以为|写道|写|问(?!题)|表示|提到|回答|要求|告诉|告知)",
    re.ASCII,
)
THAT = re.compile(
    r"[\s,]{0,3}(?:\w{1,20}[\s,]{1,3}){0,2}that\b|\s{0,3}:"
    r"|\s{0,3}(?:due\sto|because\sof|owing\sto|由于|因为|因|受|鉴于)",
    re.ASCII,
)
AFTER_OPEN = re.compile(
    r"\bwould\sbe\b(?!\s(?:needed|required|used))|\b(?:if|until|in\scase|provided\sthat|assuming)\b|\bwithout\s(?:(?!any\sdoubt)\w)|如果"
    r"|假如|的话|若(?!干)|之前",
    re.ASCII,
)
UNLESS = re.compile(r"\bunless\b|除非|\bthat(?:\sis|'s)\swhat\s(?:i|one)(?:\swould|'d)\s", re.ASCII)
# A question that asks for what is missing says that it is.
PLEASE_PROVIDE = re.compile(
    r"\b(?:provide|supply|specify|give|tell|share|enter|state|add)\s(?:\w{1,20}\s){0,4}$|提供[^,;。]{0,40}$|补充[^,;。]{0,40}$",
    re.ASCII,
)
OTHERS = re.compile(
    r"\b(?:other|others|else|further|additional|another|more|otherwise|remaining|rest)\b|其他|其它"
    r"|其余|另|别的|更多",
    re.ASCII,
)
# What makes a list of strings something else than the answer.
QUOTES = re.compile(
    r"\b(?:user|you|he|she|they|someone|somebody|some|people|anyone|everybody|everyone|colleague"
    r"|documentation|docs?|manual)\s(?:\w{1,20}\s)?(?:said|says?|claims?|claimed|wrote|writes?"
    r"|stated?|states|answers?|answered|repl(?:y|ies|ied)|reports?|reported|told)\b"
    r"|(?:用户|你|您|他|她|他们|有人|别人|文档|同事)[^,。;]{0,6}?(?:说(?!明)|认为|声称|以为|写道"
    r"|写|表示|提到|回答|告诉)",
    re.ASCII,
)
NOT_AN_ANSWER = re.compile(
    r"\b(?:if|unless|whether|suppos(?:e|ing)|assuming|in\scase|were\sthere|had\sthere|e\.g\."
    r"|for\s(?:example|instance)|such\sas|example|template)\b|\bshould\si\b|如果|假如|假设|要是"
    r"|倘若|除非|例如|比如|示例|模板|是否"
    r"|(?:\b(?:not|never|no)|n't|不是|并非|不要|不应该?|别)\s{0,3}(?:\w{1,20}\s{0,3}){0,2}:?$",
    re.ASCII,
)
NOT_AN_ANSWER_BEHIND = re.compile(
    r"[\s.`]{0,9}(?:\?|(?:is|are|was|would|does|did|should|could)\b(?!\s(?:the|my)\s(?:\w{1,20}\s)?"
    r"(?:answer|response|output)))|\s{0,9}(?:if|unless)\b|\s{0,9}(?:的说法|这句话|是错)",
    re.ASCII,
)
# Why a message that says it is unable is no refusal for what the functions cannot do.
OTHER_REASON = re.compile(
    r"\byou(?:'ve|\shave|\shad|\sdid)?(?:n't|\snot)\b|\byou\s(?:gave|provided|mentioned)\b"
    r"|\b(?:unclear|ambiguous|vague|not\sclear)\b|\b(?:is|are|was|were|seems?)\s(?:missing|wrong"
    r"|incorrect|invalid|incomplete)\b"
    r"|\bmore\s(?:information|details|context)\b|\b(?:illegal|unethical|harmful|against\smy)\b"
    r"|\bplease\s(?:first\s|also\s)?(?:tell|provide|give|specify|clarify|confirm|share|state|enter"
    r"|send|let\sme\sknow\s(?!if\b))"
    r"|\b(?:can|could|would)\syou\s(?:\w{1,20}\s)?(?:tell|provide|give|specify|clarify|confirm"
    r"|share|state)\b"
    r"|\b(?:i|we)\s(?:still\s|first\s)?need\s(?:to\sknow|your|the|more)\b"
    r"|\b(?:what|which|when|where|who|how)\b(?!\s(?:else|other))[^.!?]{0,200}\?"
    r"|请(?:先|您|你)?(?:告诉|提供|说明|补充|明确|指定|确认|告知)|请问"
    r"|[您你](?:还|并|尚)?(?:没有|没|未)|用户(?:还|并|尚)?(?:没有|未)|哪(?:个|些|一|里|天|年|位)"
    r"|不清楚|不明确|缺少|错误|违法|不道德",
    re.ASCII,
)
ANSWERED = re.compile(
    r"\b(?:answer|result)\s(?:is|was)\s(?!that\b|due\b|no\b|not\b|as\b|simple\b|the\b)[\w$]"
    r"|(?:答案|结果)(?:是|为)\s{0,3}(?!由于|因为|没有|无法|我)[\w$\u4e00-\u9fff]",
    re.ASCII,
)
INTERROGATIVE = re.compile(
    r"^\W{0,9}(?:so\s|then\s|and\s|but\s)?(?:is|are|was|were|do|does|did|can|could|would|should"
    r"|will|have|has|what|why|"
    r"how|which|who|isn't|aren't|don't|doesn't|didn't|can't)\b|[吗么呢][\s\"'”」。.!?\]]{0,5}$",
    re.ASCII,
)
# Where what was said before an expression stops to bear on it.
CLAUSE = re.compile(
    r"[,:;—–]|\s-\s|\b(?:because|since|as|so|therefore|thus|hence|due\sto|owing\sto|given|with"
    r"|but|however|although|"
    r"though|while|yet|which|still|nevertheless|(?:and|or)\s(?=(?:no|not|never|neither"
    r"|without)\b)|and\s(?:there|the|i|it|you|we|this|a|an|some|your))\b"
    r"|但|然而|可是|因此|所以|因为|由于|而且|而是|却|只是|导致|故而",
    re.ASCII,
)
CONTRAST = re.compile(
    r"[;]|\b(?:but|however|nevertheless|yet|although|though|still)\b|但|然而|可是|而是|不过|却",
    re.ASCII,
)
ONGOING_LIST = re.compile(r"^\s{0,9}(?:or|nor)\b|^\s{0,9}(?:或|也没|也不|也无)", re.ASCII)
MENTION = re.compile(
    r"\b(?:say|says|said|phrase|sentence|words?|template|example|reads?|strings?|quotes?|text"
    r"|wrote|write|called|titled|"
    r"output|answer|reply|respond|print)\b(?!\s{0,3}(?:is|:))|说|句|例|短语|写|输出(?!\s{0,3}:)",
    re.ASCII,
)


def without_false_negations(text: str) -> str:
    """The text with set phrases blanked that hold a negation and negate nothing."""
    return _NOT_NEGATION.sub(lambda match: " " * len(match.group()), text)
