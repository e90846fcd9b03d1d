"""A folder that refuses writes for a while, and a disk that is full."""

import shutil
import subprocess
from contextlib import suppress

import pytest

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


def test_writes_are_retried_while_the_store_refuses_them(make_run):
    run = make_run(samples=3, engine={"delay_s": 0.3}, concurrency=2)
    driver = run.start()
    driver.until_stored(4)
    rows, hidden_rows = run.path / "rows", run.path / "aside"
    rows.rename(hidden_rows)
    rows.write_text("no folder")
    driver.until(lambda: driver.text.count("cannot store results yet") > 1)  # engines are done
    rows.unlink()
    hidden_rows.rename(rows)
    assert driver.wait() == 0, driver.text
    assert len(run.rows()) == 36
    assert {row["attempts"] for row in run.rows()} == {1}
    waits = run.summary()["timing"]["waits"]
    assert waits["store"] > waits["tail"] + waits["no_rows"] + waits["checker"], waits


def test_full_disk_ends_the_run_and_loses_nothing(make_run, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=66m", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no permission to mount a small disk")
    try:
        run = make_run(
            output=str(disk / "runs"),
            samples=3,
            engine={"delay_s": 0.3},
            concurrency=2,
            store_retry_timeout_s=3.0,
        )
        driver = run.start()
        driver.until_stored(4)
        filler = disk / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 16))
        assert driver.wait() == 75, driver.text
        assert "No space left on device" in driver.text
        filler.unlink()
        row_ids = {row["row_id"] for row in run.rows()}
        assert len(row_ids) >= 4
        again = run.to_the_end()
        assert again.code == 0, again.text
        assert f"{36 - len(row_ids)} to evaluate" in again.text
        assert len(run.rows()) == 36
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)
