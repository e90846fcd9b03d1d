"""Start a local Ray with the settings of a run. It ends with this process."""

import signal

from ace_ray.cluster.connection import connect

connect()

import ray  # noqa: E402 - Ray reads settings when it is imported, and `connect` writes them

print(f"address {ray.get_runtime_context().gcs_address}", flush=True)
signal.pause()
