"""What ``strict`` does about three defects of upstream's checker.

- A positional argument is given to the parameter that stands in its place in the function's
  document, where upstream drops it. One too many, or one whose parameter is also named, is an
  unexpected parameter.
- A parameter that is named twice makes no call; upstream takes the last value.
- Calls of parallel categories are assigned to the expected ones so that as many as possible fit,
  where upstream gives each expected call the first that fits, which another may have needed.

What else it mends is in `relevance` and `decode.keyword_names`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ace_ray.benchmarks.bfcl.check.official import Rules, no_match
from ace_ray.benchmarks.bfcl.check.values import Fault, short
from ace_ray.benchmarks.bfcl.decode import Read

RAISES = (LookupError, AttributeError, TypeError, ValueError, ArithmeticError, RuntimeError)
"""What upstream's checker may raise: of recursion and of what is not implemented, too."""


def bound(rules: Rules, call: Read) -> Read | Fault:
    """A call with its positional arguments named; of a function that was not offered as it is.

    Raises `NotCalls` or `Refused` where one of them has no value."""
    function = next((f for f in rules.functions if rules.named(f) == call.name), None)
    if function is None:
        return call
    unexpected = "simple_function_checker:unexpected_param"
    if call.repeated is not None:
        return unexpected, f"the parameter {short(call.repeated)} is given twice"
    if not call.positional:
        return call
    names = list(function["parameters"]["properties"])
    args: dict[Any, Any] = dict(call.args)
    if call.bare:
        args.pop(None, None)
    for place, make in call.positional.items():
        value = make()
        if place >= len(names):
            return unexpected, f"argument {place + 1} of a function with {len(names)} parameters"
        if names[place] in args:
            return unexpected, f"the parameter {short(names[place])} is given twice"
        args[names[place]] = value
    return Read(call.name, args)


def parallel_fault(rules: Rules, calls: Sequence[Read]) -> Fault | None:
    """What is wrong with the calls of a parallel category, as many as expected, under the best
    assignment.

    A pair on which the checker raises does not fit; raises what it raised when no assignment fits.
    """
    raised: Exception | None = None
    fitting: list[list[int]] = []
    for place in range(len(rules.gold)):
        fitting.append([])
        for number, call in enumerate(calls):
            try:
                if rules.call_fault(call, place) is None:
                    fitting[place].append(number)
            except RAISES as error:
                raised = error
    taken: dict[int, int] = {}
    for place in range(len(fitting)):
        if not _assign(place, fitting, taken, set()):
            if raised is not None:
                raise raised
            return no_match(rules.gold[place])
    return None


def _assign(place: int, fitting: list[list[int]], taken: dict[int, int], tried: set[int]) -> bool:
    """Give the expected call in ``place`` a call, moving others where needed."""
    for number in fitting[place]:
        if number not in tried:
            tried.add(number)
            if number not in taken or _assign(taken[number], fitting, taken, tried):
                taken[number] = place
                return True
    return False
