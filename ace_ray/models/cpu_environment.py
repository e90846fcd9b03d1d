"""What vLLM's processes are told about the cores and the memory of a machine without a GPU.

Each variable is read when a process starts, or loads a library, so these are for children. They
have no effect on what runs on a GPU.
"""

from __future__ import annotations

import os

SPINS = 20_000
"""Between the 10,000 and the 30,000 that were measured."""


def all_cores() -> dict[str, str]:
    """Give an engine all cores of this process.

    vLLM's "auto" keeps a core for its frontend: half the speed on 2 cores. Ray sets
    OMP_NUM_THREADS to the actor's logical CPUs, which the binding overrides.
    """
    cores = sorted(os.sched_getaffinity(0))
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores))}


def short_spins() -> dict[str, str]:
    """Let threads of an engine that wait for one another give their cores away sooner.

    OpenMP's (libgomp) look for 300,000 turns whether the others have come.
    Where the processes beside an engine need cores too, those are the cores they wait for: with a
    tenth or less of the turns a pipeline was some 6 % faster on 2 cores, and bare vLLM, whose
    frontend is such a process, 9 %; with 1,000 both were slower (perf/rounds.csv).
    """
    # A user's policy rules the count.
    return {} if "OMP_WAIT_POLICY" in os.environ else {"GOMP_SPINCOUNT": str(SPINS)}


def kept_memory() -> dict[str, str]:
    """Let an engine core's allocator keep the buffers of one step for the next.

    By default glibc hands large ones back to the kernel, which then zeroes them again page by page:
    a CPU engine spent a tenth of its first minute on that.
    """
    return {
        "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
        "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
        "MALLOC_TOP_PAD_": str(256 << 20),
    }


def cpu_environment() -> dict[str, str]:
    """All of it; what the user has set stays."""
    ours = all_cores() | short_spins() | kept_memory()
    return {name: os.environ.get(name, value) for name, value in ours.items()}
