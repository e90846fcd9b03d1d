"""Choose environment variables for the cores and memory of vLLM's processes without a GPU.

A process reads the variables when it starts or loads a library, so they are for child processes.
They do not affect engines on a GPU."""

from __future__ import annotations

import os


def core_binding() -> dict[str, str]:
    """Return the variable that gives an engine all cores of this process.

    vLLM's "auto" reserves a core for its frontend, which halves the speed on 2 cores. The variable
    overrides OMP_NUM_THREADS, which Ray sets to the actor's logical CPUs."""
    cores = sorted(os.sched_getaffinity(0))
    return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores))}


def cpu_environment() -> dict[str, str]:
    """Return all variables of this module. A value that the user has set is kept."""
    ours = core_binding()
    # By default a thread of OpenMP (libgomp) spins 300,000 times at a barrier, and occupies a core
    # that other processes need. With 10,000 or 30,000 spins a pipeline was about 6 % faster on 2
    # cores; with 1,000 it was slower (perf/rounds.csv).
    if "OMP_WAIT_POLICY" not in os.environ:
        ours["GOMP_SPINCOUNT"] = "20000"
    # By default glibc returns large buffers to the kernel between steps, which zeroes their pages
    # again. A CPU engine spent a tenth of its first minute on this zeroing.
    ours["MALLOC_MMAP_THRESHOLD_"] = str(4 << 30)
    ours["MALLOC_TRIM_THRESHOLD_"] = str(8 << 30)
    ours["MALLOC_TOP_PAD_"] = str(256 << 20)
    return {name: os.environ.get(name, value) for name, value in ours.items()}
