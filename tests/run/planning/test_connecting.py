"""Ray starts in a thread beside the plan, which Linux makes the parent of Ray's processes."""

from __future__ import annotations

import threading

import pytest
import ray

from ace_ray.errors import UserError
from ace_ray.run.planning import cluster
from ace_ray.run.planning.cluster import connect, connecting


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(ray, "shutdown", lambda: said.append("shutdown"))
    return said


def parent() -> threading.Thread | None:
    return next((t for t in threading.enumerate() if t.name == "connecting"), None)


def test_its_thread_outlives_all_that_is_done_with_ray(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    monkeypatch.setattr(cluster, "_connect", lambda: events.append(threading.current_thread().name))
    with connecting():
        connect()
        thread = parent()
        assert thread is not None
        assert events == ["connecting"]
        connect()  # of a later pass
        assert events == ["connecting", "MainThread"]
    thread.join()
    assert events[2:] == ["shutdown"]


def test_what_it_raises_is_raised_where_it_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, events: list[str]
) -> None:
    def refuse() -> None:
        raise UserError("no", where="Ray", fix="yes")

    monkeypatch.setattr(cluster, "_connect", refuse)
    with pytest.raises(UserError, match="Ray: no; yes"), connecting():
        connect()
    assert events == ["shutdown"]


@pytest.mark.parametrize(("error", "ends"), [(UserError, True), (KeyboardInterrupt, False)])
def test_an_error_beside_it_ends_ray_after_it_has_come(
    monkeypatch: pytest.MonkeyPatch, events: list[str], error: type[BaseException], ends: bool
) -> None:
    """A wish to end at once waits for nothing: Ray goes with the process."""
    goes_on = threading.Event()

    def start() -> None:
        goes_on.wait()
        events.append("there")

    monkeypatch.setattr(cluster, "_connect", start)
    if ends:
        goes_on.set()
    raised = UserError("no", where="x", fix="y") if error is UserError else error()
    with pytest.raises(error), connecting():
        raise raised
    assert events == (["there", "shutdown"] if ends else [])
    goes_on.set()
