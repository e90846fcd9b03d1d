"""Errors of ace_ray, grouped by the place that handles them.

Every failure has one of three kinds and is recorded once:

- The **user** requested something that is not possible: `UserError`, one line, exit code 2.
- One **row** could not be evaluated: `RowError`. It becomes the row's status; other rows continue.
- An **engine** has ended: `EngineDead`. Its worker process exits, so that Ray retries its rows.

Any other exception is a defect of ace_ray and keeps its traceback."""

from __future__ import annotations

from ace_ray.util.sanitizing import sanitize_line

# Exit codes: all rows have a verdict; the run failed and would fail again; a retry continues it.
COMPLETE, FAILED, INCOMPLETE = 0, 1, 75


# Maximum characters of an error message, which may quote text from users or models.
LONGEST = 4_000


class UserError(Exception):
    """A user's mistake, printed as one line ``where: what; fix``.

    Args:
        what: the problem, including the invalid value.
        where: the config key, file and line, or object that has the problem.
        fix: the text to write or the action to take instead.
    """

    exit_code = 2

    def __init__(self, what: str, where: str = "", fix: str = "") -> None:
        self.what, self.where, self.fix = what, where, fix
        super().__init__(what, where, fix)

    def __str__(self) -> str:
        line = f"{self.where}: {self.what}" if self.where else self.what
        if self.fix:
            line = f"{line}; {self.fix}"
        return " ".join(sanitize_line(line, LONGEST).split())


def first_line(error: object, otherwise: str | None = None) -> str:
    """Return the first line of ``str(error)`` that is not blank. If there is none, return
    ``otherwise``, or by default the name of the class."""
    default = type(error).__name__ if otherwise is None else otherwise
    return next((line for line in str(error).splitlines() if line.strip()), default)


class RowError(Exception):
    """One row could not be evaluated. Its stored status is ``status``."""

    status = "infra_error"


class PromptTooLong(RowError):
    """The prompt and ``max_tokens`` do not fit the model's context."""

    status = "skipped"


class PromptRefused(RowError):
    """The model's chat template refuses these messages."""

    status = "skipped"


class RequestFailed(RowError):
    """The engine failed on this request, but can serve other requests."""


class EngineDead(Exception):
    """The engine of this worker has ended."""


class EngineNotStarted(Exception):
    """An engine could not be started. The message is one line with the root cause."""


class EpisodeStalled(RowError):
    """An episode timed out, and the evaluated model was not the cause."""


class EpisodeTimeout(RowError):
    """An episode, or a preparation that several episodes share, exceeded its time limit."""


class SandboxLost(RowError):
    """The sandbox of an episode crashed repeatedly, or could not be opened."""


class RunFailed(Exception):
    """The run failed before all rows were evaluated. Details are in Ray's logs.

    ``resumable``: the same command may succeed later. ``again``: it may succeed at once."""

    def __init__(self, line: str, *, resumable: bool = False, again: bool = False) -> None:
        self.resumable, self.again = resumable, again
        super().__init__(line)
