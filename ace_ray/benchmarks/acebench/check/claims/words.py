"""The words by which a message says what is missing, wrong or out of reach, in two languages.

All patterns are for folded text (`text`): ASCII in lower case, punctuation of half width. Their
quantifiers are bounded, so that a search costs no more than the text's length.
"""

from __future__ import annotations

import re

MISSING = re.compile(
    r"\b(?:missing|lack(?:s|ing|ed)?|absent|omitted|left out)\b"
    r"|\b(?:not|n't)\s(?:been\s)?(?:provided?|given?|specif(?:y|ied)|suppl(?:y|ied)|stated?"
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
    rf"|\b(?:beyond|exceeds?|outside(?:\sof)?|out\sof)\s(?:\w{{1,20}}\s){{0,5}}(?:{_TOOLS}"
    rf"|scope)\b"
    rf"|\b(?:none\sof|no)\s(?:\w{{1,20}}\s){{0,4}}{_TOOLS}\s(?:can|could|is|are|fits?"
    rf"|match(?:es)?|"
    r"supports?|exists?|applies|suits?|to)\b"
    r"|(?:函数|功能|接口|api|工具|能力)[^,.;。]{0,12}?(?:限制|局限|不足|有限)"
    r"|(?:超出|超过|超越)[^,;。]{0,24}?(?:能力|范围|功能|限制)"
    r"|(?:没有|无)[^,;。]{0,8}?(?:合适|可用|相关|适合|对应|匹配)的?(?:函数|接口|api|工具)",
    re.ASCII,
)
UNABLE = re.compile(
    r"\b(?:can\s?not|can't|unable\sto|not\sable\sto|incapable\sof|could\s?not|couldn't|"
    r"impossible\s(?:for\s(?:me|us)\s)?to|not\spossible\s(?:for\s(?:me|us)\s)?to"
    r"|no\sway\s(?:for\sme\s)?to)\s"
    rf"(?:\w{{1,20}}\s){{0,2}}?{_TASK}(?:\s(?:you\s)?(?:with\s|to\s)?{_THIS})?"
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
    r"|(?<![不无])(?:可以|能够)[^,;。]{0,8}?(?:解决|完成|处理|满足|回答"
    r"|实现)[^,;。]{0,10}?(?:问题|请求|任务|需求|要求)",
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
    r"|\b(?:false|untrue|wrong|incorrect|mistaken|misleading|a\smistake|a\slie)\s(?:to|that)\b"
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
    r"^[^.!?]{0,80}(?::|\bis|\bare)\s{0,3}(?:none|nothing|no|n/a)\b(?!\sof)|:\s{0,3}(?:无"
    r"|没有)(?:$|[,。\s])",
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
    r"when(?:ever)?\sthere|according\sto\s(?:you|him|her|them|some|the\suser)|were\sthere|had\sthere|should\sthere|suspect|guess|let\sus\ssay|let's\ssay|say\sthat\sif)\b"
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
    r"\b(?:user|you|he|she|they|someone|somebody|some|people|anyone|assistant|agent|bot|system"
    r"|documentation|"
    r"docs?|prompt|manual|instructions?|rules?|colleague|model|models)\s(?:\w{1,20}\s)?"
    r"(?:said|says?|claims?|claimed|thinks?|thought|asks?|asked|wrote|writes?|believes?|believed"
    r"|stated?|states|"
    r"answers?|answered|repl(?:y|ies|ied)|reports?|reported|reads?|complain(?:s|ed)?|told)\b"
    r"|(?:用户|你|您|他|她|他们|有人|别人|系统|文档|说明|提示|助手|模型"
    r"|同事)[^,。;]{0,6}?(?:说(?!明)|认为|声称|以为|写道|写|问|表示|提到|回答|要求|告诉|告知)",
    re.ASCII,
)
THAT = re.compile(
    r"[\s,]{0,3}(?:\w{1,20}[\s,]{1,3}){0,2}that\b|\s{0,3}:"
    r"|\s{0,3}(?:due\sto|because\sof|owing\sto|由于|因为|因|受|鉴于)",
    re.ASCII,
)
AFTER_OPEN = re.compile(
    r"\b(?:if|until|in\scase|provided\sthat|assuming)\b|\bwithout\s(?:(?!any\sdoubt)\w)|如果"
    r"|假如|的话|若(?!干)|之前",
    re.ASCII,
)
UNLESS = re.compile(r"\bunless\b|除非", re.ASCII)
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
    return _NOT_NEGATION.sub(lambda found: " " * len(found.group()), text)
