"""``ace-ray publish``: the numbers of a run or a sweep to a tracker, each of them once."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ace_ray.bounded import Unbounded, yaml_tree
from ace_ray.clean import one_line
from ace_ray.errors import UserError
from ace_ray.publishers.base import Publisher
from ace_ray.publishers.registry import make_publisher, raised
from ace_ray.records import digest
from ace_ray.store import Store
from ace_ray.track.ledger import changed, note_sent, read_sent, unsent
from ace_ray.track.publications import Published, publications


def publish(
    store: Store,
    to: str,
    options: Mapping[str, Any],
    say: Callable[[str], None],
    *,
    again: bool = False,
) -> None:
    """Send what the tracker ``to`` does not have of the run or sweep in ``store``, a line for each
    publication. ``again``: also what it was sent.

    Raises `UserError`: nothing can be sent as asked, or the tracker failed. What was sent until
    then is noted.
    """
    publisher = make_publisher(to, options, to)
    target = f"{to} {digest(_tried(to, publisher.place))[:16]}"
    for published in publications(store, say):
        _send(published, to, publisher, target, say, again=again)


def options_of(items: Sequence[str]) -> dict[str, Any]:
    """``K=V`` items of a command line, whose values are YAML. Raises `UserError`."""
    options: dict[str, Any] = {}
    for item in items:
        key, equals, text = item.partition("=")
        try:
            if not equals or not key:
                raise Unbounded("is not KEY=VALUE")
            options[key] = yaml_tree(text)
        except Unbounded as error:
            # Not the value: it may be a secret.
            raise UserError(str(error), where=f"--option {key}", fix="write key=value") from error
    return options


def _send(
    published: Published,
    to: str,
    publisher: Publisher[Any],
    target: str,
    say: Callable[[str], None],
    *,
    again: bool,
) -> None:
    publication, store = published.publication, published.store
    sent = {} if again else read_sent(store, target, publication.key)
    new = unsent(publication.points, sent)
    if not new:
        say(f"{publication.name}: nothing new for {to}")
        return
    place = _tried(to, lambda: publisher.publish(publication, new))
    note_sent(store, target, publication.key, new)
    line = f"{publication.name}: {len(new)} point{'s' * (len(new) > 1)} sent to {to}: {place}"
    if others := changed(new, sent):
        line += f"; {others} numbers differ from what was sent before"
    say(line)


@contextlib.contextmanager
def _stdout_aside() -> Iterator[None]:
    """What Python and child processes print goes to stderr."""
    if sys.stdout is not None:
        sys.stdout.flush()
    try:
        kept = os.dup(1)
    except OSError:  # it is closed
        kept = None
    try:
        if kept is not None:
            os.dup2(2, 1)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)


def _tried(to: str, ask: Callable[[], str]) -> str:
    """What a publisher returns; whatever it raises is a `UserError`, since it is no defect of
    ours. What trackers print does not mix with what a command prints."""
    try:
        with _stdout_aside():
            return one_line(str(ask()))
    except UserError:
        raise
    # A tracker's own exit is no exit of ours.
    except (Exception, SystemExit) as error:
        raise UserError(
            f"not published, {raised(error)}",
            where=to,
            fix="publish again, then what is missing is sent",
        ) from error
