"""A name that cannot be a folder ends in one line."""

from typing import Any

import pytest

from ace_ray.benchmarks.registry import make_benchmark
from ace_ray.errors import UserError
from ace_ray.models.sources import resolve
from ace_ray.storage.object_store import is_relative, open_store

INVALID = ["~nosuchuser/x", "a" * 5000, "b/" * 3000, "a\0b"]


@pytest.mark.parametrize("text", INVALID, ids=range(len(INVALID)))
def test_an_invalid_path_is_refused_everywhere(text: str, invoke: Any) -> None:
    with pytest.raises(UserError, match="is not a valid path"):
        open_store(text)
    with pytest.raises(UserError):
        resolve(text, None)
    is_relative(text)
    with pytest.raises(UserError, match="data"):
        make_benchmark("acebench", {"data": text}).resolved()
    for command in ("report", "score", "compact"):
        for uri in (text, "s3://[/x"):
            result = invoke(command, uri.replace("\0", ""))
            assert result.code == 2
            assert result.stderr.startswith("ace-ray: ")
