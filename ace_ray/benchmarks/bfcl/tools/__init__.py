"""The tools of multi-turn and memory entries: upstream's classes out of the user's own copy, behind
a `Scenario` that parses calls and never evaluates a model's text.

Runs and checks use `limited`, where they live in a process of their own; `Environment` is what
lives there.
"""
