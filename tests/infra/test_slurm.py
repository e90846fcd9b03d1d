"""The Slurm script, with stand-ins for the commands of Slurm and Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "infra" / "slurm" / "evaluate.sbatch"

SRUN = """#!/bin/bash
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


def said(log: Path) -> str:
    return log.read_text() if log.exists() else ""


@pytest.mark.parametrize("code", ["2", "75", ""])
def test_a_job_that_is_incomplete_or_out_of_time_is_requeued(tmp_path: Path, code: str) -> None:
    log = tmp_path / "log"
    commands = {"srun": SRUN, "scontrol": SCONTROL, "ray": RAY, "ace-ray": ACE_RAY}
    for name, text in commands.items():
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    slurm = {"NODELIST": "node[1-2]", "NUM_NODES": "2", "ID": "7"}
    told = {f"SLURM_JOB_{name}": value for name, value in slurm.items()}
    job = subprocess.Popen(
        ["bash", str(SCRIPT), "config.yaml", "s3://bucket/prefix"],
        cwd=tmp_path,
        env={**os.environ, **told, "PATH": path, "LOG": str(log), "CODE": code},
    )
    if not code:
        until = time.monotonic() + 120
        while "ace-ray evaluate" not in said(log):
            assert time.monotonic() < until
            time.sleep(0.02)
        job.send_signal(signal.SIGTERM)
    assert job.wait(timeout=120) == int(code or 75)
    assert "ray --address node1:6379 --min-nodes 2 token 64" in said(log)
    assert "ace-ray evaluate config.yaml --output s3://bucket/prefix" in said(log)
    assert ("drained" in said(log)) is (code == "")
    assert ("scontrol requeue 7" in said(log)) is (code != "2")
    assert not list(tmp_path.glob(".ace-ray-pid*"))
