"""ace_ray: distributed batch evaluation of LLM tool use, on Ray and vLLM."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ace_ray.api import Run as Run
    from ace_ray.api import compare as compare
    from ace_ray.api import evaluate as evaluate
    from ace_ray.api import export as export
    from ace_ray.api import gate as gate
    from ace_ray.api import publish as publish
    from ace_ray.api import report as report
    from ace_ray.api import reread as reread
    from ace_ray.api import score as score
    from ace_ray.api import sweep as sweep
    from ace_ray.errors import RunFailed as RunFailed
    from ace_ray.errors import UserError as UserError

__version__ = "0.1.0"

_COMMANDS = "compare evaluate export gate publish report reread score sweep"
# Public name -> its module, which is imported on first access, so that commands start fast.
_MODULES = {
    **dict.fromkeys(["Run", *_COMMANDS.split()], "ace_ray.api"),
    **dict.fromkeys(["RunFailed", "UserError"], "ace_ray.errors"),
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'ace_ray' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted([*_MODULES, "__version__"])
