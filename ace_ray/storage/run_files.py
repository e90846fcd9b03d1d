"""The files of a run's folder: which folders a run has, and which files belong to the run."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from ace_ray.storage.lease import LEASE
from ace_ray.storage.object_store import Store
from ace_ray.storage.parts import FOLDER, is_part_name
from ace_ray.storage.stored import MANIFEST, SUCCESS, SUMMARY, read_manifest
from ace_ray.util import log

# Folder of the files that benchmarks write.
FILES = "files/"
# Folder of the result file that StableToolBench writes (docs/stabletoolbench.md).
RESULTS = "results/tools/"
# Folder of a report; its files are not part of the run.
REPORTS = "report/"
# Folder of the sessions' logs (`ace_ray.storage.session_log`).
LOGS = "logs/"


def check_unlinked(store: Store, benchmarks: Iterable[str] = ()) -> None:
    """Raise `UserError` if a folder in which a run of ``benchmarks`` writes is a symbolic link."""
    for folder in (FOLDER, RESULTS, FILES, LOGS, *(f"{FILES}{name}" for name in benchmarks)):
        store.check_unlinked(folder.rstrip("/"))


def remove_run(store: Store) -> None:
    """Remove the run in ``store``, if there is one, for example for ``--fresh``.

    Remove only files that a run with this manifest writes, and warn about other files. Raises
    `UserError`, and removes nothing, if the manifest is damaged or a folder is a link."""
    if store.get(MANIFEST) is None:
        return
    benchmarks = read_manifest(store).identity.benchmarks
    check_unlinked(store)
    listed = [item.path for item in store.list()]
    ours = [path for path in listed if _is_run_file(path, benchmarks)]
    run_paths = {*ours, MANIFEST, SUMMARY, SUCCESS, LEASE}
    extras = [path for path in listed if path not in run_paths and not path.startswith(REPORTS)]
    for path in (SUCCESS, *ours, SUMMARY, MANIFEST):
        store.delete(path)
    if extras:
        more = f" and {len(extras) - 1} more" if len(extras) > 1 else ""
        names = f"{extras[0]}{more}"
        log.warning(f"{store.root}: does not belong to the run and stays unchanged: {names}")


def _is_run_file(path: str, benchmarks: Collection[str]) -> bool:
    """Return whether a run of ``benchmarks`` may write the file ``path`` in one of its folders."""
    if path.startswith(FOLDER):
        return is_part_name(path)
    for plain_folder, suffix in ((RESULTS, ".json"), (LOGS, ".jsonl")):
        if path.startswith(plain_folder):
            return "/" not in path.removeprefix(plain_folder) and path.endswith(suffix)
    folder, *inner = path.removeprefix(FILES).split("/")
    plain = inner and not {"", ".", ".."} & {*inner}
    return path.startswith(FILES) and bool(plain) and folder in benchmarks
