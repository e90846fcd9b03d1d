"""Errors, by who has to act.

Every failure belongs to one of three boundaries and is recorded there once:

- the **user** asked for something that cannot be done: `UserError`, one line, exit code 2;
- one **row** could not be evaluated: `RowError`, stored as that row's status, the others go on;
- an **engine** is gone: `EngineDead`, its worker process ends so that Ray retries its rows.

Anything else is a defect of ace_ray and keeps its traceback.
"""

from __future__ import annotations

from ace_ray.util.sanitizing import printed

# Exit codes of a run: all rows have a verdict; it would fail again; the same command continues.
COMPLETE, FAILED, INCOMPLETE = 0, 1, 75


# Maximum characters of an error's line, which may quote text from outside.
LONGEST = 4_000


class UserError(Exception):
    """A user's mistake, printed as one line ``where: what; fix``.

    Args:
        what: what is wrong, naming the offending value.
        where: the config key, file and line, or object it was found in.
        fix: what to write or do instead.
    """

    exit_code = 2

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        if self.fix:
            line = f"{line}; {self.fix}"
        return " ".join(printed(line, LONGEST).split())


def first_line(error: object, otherwise: str | None = None) -> str:
    """Return the first line of ``str(error)`` that is not blank, else ``otherwise``, by default the
    name of the class."""
    default = type(error).__name__ if otherwise is None else otherwise
    return next((line for line in str(error).splitlines() if line.strip()), default)


class RowError(Exception):
    """One row could not be evaluated. The row is stored with ``status``."""

    status = "infra_error"


class PromptTooLong(RowError):
    """The prompt and ``max_tokens`` do not fit the model's context."""

    status = "skipped"


class PromptRefused(RowError):
    """The model's chat template refuses these messages."""

    status = "skipped"


class RequestFailed(RowError):
    """The engine failed on this request and goes on with others."""


class EngineDead(Exception):
    """The engine of this worker has ended."""


class EngineNotStarted(Exception):
    """An engine could not be started. The message is one line with the root cause."""


class EpisodeStalled(RowError):
    """Another part than the candidate used up an episode's time."""


class SandboxLost(RowError):
    """The sandbox of an episode crashed repeatedly, or cannot be opened."""


class RunFailed(Exception):
    """The run ended before its rows were evaluated. One line; details are in Ray's logs.

    ``resumable``: the same command may get further later. ``again``: it may get further at once.
    """

    def __init__(self, line: str, *, resumable: bool = False, again: bool = False) -> None:
        self.resumable, self.again = resumable, again
        super().__init__(line)
