"""The Slurm script, with stand-ins for the commands of Slurm and Ray."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ace_ray.config.schema import RunConfig
from ace_ray.pipeline.end_time import CLOSING_S, rows_end_at
from tests.limits import until

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "slurm" / "evaluate.sbatch"

SRUN = """#!/bin/bash
echo "srun with $SRUN_CPUS_PER_TASK CPUs until $SLURM_JOB_END_TIME" >> "$LOG"
while [[ $1 == --* ]]; do shift; done
exec "$@"
"""
SCONTROL = """#!/bin/bash
echo "scontrol $*" >> "$LOG"
[ "$1" = show ] && printf 'node1\\nnode2\\n'
exit 0
"""
RAY = f"""#!{sys.executable}
import os, subprocess, sys
from ray.scripts.symmetric_run import curate_and_validate_ray_start_args
assert sys.argv[1] == "symmetric-run", sys.argv
cut = sys.argv.index("--")
options = sys.argv[2:cut]
assert curate_and_validate_ray_start_args(list(options)) == [], options
with open(os.environ["LOG"], "a") as log:
    print("ray", *options, os.environ["RAY_AUTH_MODE"], len(os.environ["RAY_AUTH_TOKEN"]), file=log)
sys.exit(subprocess.run(sys.argv[cut + 1:]).returncode)
"""
ACE_RAY = """#!/bin/bash
trap 'echo drained >> "$LOG"; exit 75' TERM
echo "ace-ray $*" >> "$LOG"
[ -n "${CODE:-}" ] && exit "$CODE"
while :; do sleep 0.05; done
"""


class Job:
    """Starts the script as Slurm would."""

    def __init__(self, folder: Path, code: str) -> None:
        self.log = folder / "log"
        commands = {"srun": SRUN, "scontrol": SCONTROL, "ray": RAY, "ace-ray": ACE_RAY}
        for name, text in commands.items():
            (folder / name).write_text(text)
            (folder / name).chmod(0o755)
        self.process = subprocess.Popen(
            ["bash", str(SCRIPT), "config.yaml", "s3://bucket/prefix"],
            cwd=folder,
            env={
                **os.environ,
                "PATH": f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}",
                "LOG": str(self.log),
                "CODE": code,
                "SLURM_JOB_NODELIST": "node[1-2]",
                "SLURM_JOB_NUM_NODES": "2",
                "SLURM_JOB_ID": "7",
                "SLURM_CPUS_PER_TASK": "32",
                "SLURM_JOB_END_TIME": "1800000000",
            },
        )

    def output(self) -> str:
        return self.log.read_text() if self.log.exists() else ""


def test_the_signal_comes_after_the_planned_end_of_rows() -> None:
    (seconds,) = re.findall(r"^#SBATCH --signal=B:TERM@(\d+)$", SCRIPT.read_text(), re.MULTILINE)
    (hours,) = re.findall(r"^#SBATCH --time=(\d\d):00:00$", SCRIPT.read_text(), re.MULTILINE)
    end = int(hours) * 3600.0
    unix_end = end + time.time() - time.monotonic()
    rows_end = rows_end_at("auto", 0.0, {"SLURM_JOB_END_TIME": str(unix_end)})
    assert rows_end == pytest.approx(end - CLOSING_S[1], abs=0.1)
    assert CLOSING_S[1] > int(seconds)
    assert int(seconds) > RunConfig.model_fields["drain_timeout_s"].default, (
        "rows in flight can end"
    )


@pytest.mark.nightly
@pytest.mark.parametrize("code", ["2", "75", ""])
def test_a_job_that_is_incomplete_or_out_of_time_is_requeued(tmp_path: Path, code: str) -> None:
    job = Job(tmp_path, code)
    if not code:
        until(lambda: "ace-ray evaluate" in job.output())
        job.process.send_signal(signal.SIGTERM)
    assert job.process.wait(timeout=120) == int(code or 75)
    output = job.output()
    assert "srun with 32 CPUs until 1800000000" in output
    assert "ray --address node1:6379 --min-nodes 2 token 64" in output
    assert "ace-ray evaluate config.yaml --output s3://bucket/prefix" in output
    assert ("drained" in output) is (code == "")
    assert ("scontrol requeue 7" in output) is (code != "2")
    assert not list(tmp_path.glob(".ace-ray-pid*"))
