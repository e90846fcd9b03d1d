"""Start a local Ray as a run does, and keep it until this process ends."""

import signal

from ace_ray.cluster.connection import connect

connect()

import ray  # noqa: E402 - Ray reads settings when it is imported, and `connect` makes them

print(f"address {ray.get_runtime_context().gcs_address}", flush=True)
signal.pause()
