"""Verdicts under both rule sets on what a model answered.

- ``official``: what upstream's own evaluator says, its quirks included;
- ``strict``: the same without the defects that `strict`, `relevance` and the multi-turn checker
  name.

Nothing of an answer is executed, and no answer makes a checker raise, hang or grow.
"""
