"""What `ace-ray view` takes on a large run on S3: times of pages, memory, requests to the store.

    python perf/view.py RUN [--rows 100000]

The rows of the stored RUN are repeated under ids of their own until there are as many, in parts of
1,600 rows, on an S3 server of the script's own (moto, in this machine's memory: its speed is no
network's). A fresh process then serves them; each page is asked for twice.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from urllib.parse import quote

import psutil
import pyarrow as pa
from s3_server import S3Server

from ace_ray.run.storage.parts import new_session, read_ledger, write_parts
from ace_ray.run.storage.rows import rows_schema
from ace_ray.run.storage.stored import MANIFEST, read_manifest
from ace_ray.store import Store, open_store

PART_ROWS = 1_600


def repeated(tables: list[pa.Table], rows: int) -> Iterator[pa.Table]:
    """``rows`` rows in parts, each with an id of its own."""
    whole = pa.concat_tables(tables)
    done = 0
    while done < rows:
        count = min(PART_ROWS, rows - done)
        picked = whole.take(pa.array([(done + i) % whole.num_rows for i in range(count)]))
        ids = [f"{name}_{done + i}" for i, name in enumerate(picked.column("id").to_pylist())]
        row_ids = [hashlib.sha256(f"{done + i}".encode()).hexdigest()[:32] for i in range(count)]
        for name, values in (("id", ids), ("group", ids), ("row_id", row_ids)):
            place = picked.column_names.index(name)
            kind = picked.schema.field(name).type
            picked = picked.set_column(place, name, pa.array(values, kind))
        yield picked
        done += count


def copy(source: Store, target: Store, rows: int) -> str:
    """Fill ``target`` with the run; returns its id."""
    manifest = read_manifest(source)
    schema = rows_schema(manifest.all_rule_sets)
    ledger = read_ledger(source, schema=schema)
    tree = json.loads(source.get(MANIFEST) or b"{}")
    target.put(MANIFEST, json.dumps({**tree, "declared": rows}).encode())
    session = new_session([], "000001")
    for table in repeated(list(ledger.tables(schema.names)), rows):
        write_parts(target, session, table)
    target.put("_SUCCESS", b"")
    return manifest.run_id


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", help="a stored run")
    parser.add_argument("--rows", type=int, default=100_000)
    asked = parser.parse_args()
    with S3Server() as server:
        uri = f"{server.uri}/view"
        target = open_store(uri)
        run_id = copy(open_store(asked.run), target, asked.rows)
        stored = sum(item.size for item in target.list("rows/"))
        parts = len(list(target.list("rows/")))
        print(f"{asked.rows:,} rows, {parts} parts, {stored / 1e6:.0f} MB")
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        began, before = time.perf_counter(), server.asked
        command = [sys.executable, "-m", "ace_ray.cli", "view", uri, "--port", str(port)]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            base = f"http://127.0.0.1:{port}/run/{quote(run_id, safe='')}/"
            text = first_page(base, process)
            print(
                f"first page {time.perf_counter() - began:.1f} s after the command, "
                f"{server.asked - before} requests to the store"
            )
            row = re.search(r'href="(/run/[^"]*/row/[^"?]*)', text)
            assert row is not None
            pages = {
                "list": base,
                "list, wrong rows": f"{base}?verdict=wrong",
                "list, by seconds": f"{base}?sort=-duration_s",
                "last page": f"{base}?page=100000",
                "row": f"http://127.0.0.1:{port}{row[1]}",
                "search, all rows": f"{base}?text=temperature",
                "search, wrong rows": f"{base}?text=weather&verdict=wrong",
            }
            for name, address in pages.items():
                times, requests = [], []
                for _ in range(2):
                    before, start = server.asked, time.perf_counter()
                    with urllib.request.urlopen(address) as answer:
                        answer.read()
                    times.append(time.perf_counter() - start)
                    requests.append(server.asked - before)
                print(
                    f"{name:20} {times[0]:6.2f} s, again {times[1]:6.2f} s; "
                    f"{requests[0]} and {requests[1]} requests"
                )
            memory = psutil.Process(process.pid).memory_info().rss
            print(f"memory {memory / 1e6:.0f} MB at the end")
        finally:
            process.terminate()
            process.wait()


def first_page(address: str, process: subprocess.Popen[bytes]) -> str:
    while process.poll() is None:
        try:
            with urllib.request.urlopen(address) as answer:
                text: str = answer.read().decode()
                return text
        except OSError:
            time.sleep(0.05)
    sys.exit("the view ended")


if __name__ == "__main__":
    main()
