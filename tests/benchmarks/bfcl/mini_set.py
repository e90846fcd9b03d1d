"""Functions and tools of the mini set."""

from __future__ import annotations

from ace_ray.benchmarks.bfcl.data.loader import function_docs
from ace_ray.benchmarks.bfcl.data.upstream_package import UpstreamPackage
from ace_ray.benchmarks.bfcl.tools.sources import tool_sources

COPY = UpstreamPackage.locate("mini")
DOCS = function_docs(COPY)
SOURCES = tool_sources(COPY)
