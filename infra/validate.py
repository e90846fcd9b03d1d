"""Validate what `kubectl apply -k infra/kuberay/...` would send against published CRDs.

    python infra/validate.py FOLDER

FOLDER holds the CRDs as YAML files: KubeRay's from its repository's
``helm-chart/kuberay-operator/crds``, Kueue's from ``config/components/crd/bases``. As strict as an
API server with strict field validation: unknown fields are errors. Two things are left to the
server: rules in CEL (``x-kubernetes-validations``), and kinds that have no CRD. An image by tag
is a problem, too: what a tag points to may change.
"""

import copy
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from jsonschema import Draft7Validator

KUBERAY = Path(__file__).resolve().parent / "kuberay"
FOLDERS = ("evaluate", "sweep", "evaluate-kueue", "sweep-kueue", "queues")
"""What can be applied."""


def render(folder: Path) -> list[dict[str, Any]]:
    """The objects of a kustomization, as `kubectl kustomize` makes them.

    Knows what these folders use: resources, components, JSON patches by kind, config maps of files,
    image names. Raises `ValueError` for anything else.
    """
    objects: list[dict[str, Any]] = []
    for path in _kustomization(folder).pop("resources", []):
        target = folder / path
        objects += render(target) if target.is_dir() else load(target)
    return _transformed(folder, objects)


def _transformed(folder: Path, objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    tree = _kustomization(folder)
    known = {"apiVersion", "kind", "resources", "components", "patches", "images"}
    unknown = tree.keys() - known - {"configMapGenerator", "generatorOptions"}
    if unknown:
        raise ValueError(f"{folder}: {', '.join(sorted(unknown))} is not known here")
    for made in tree.get("configMapGenerator", []):
        content = {name: (folder / name).read_text() for name in made["files"]}
        named = {"name": made["name"]}
        config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": named, "data": content}
        objects.append(config_map)
    for patch in tree.get("patches", []):
        for item in objects:
            if item["kind"] == patch["target"]["kind"]:
                for operation in yaml.safe_load(patch["patch"]):
                    _patch(item, operation)
    for image in tree.get("images", []):
        for item in objects:
            _rename(item, image["name"], f"{image['newName']}@{image['digest']}")
    for component in tree.get("components", []):
        objects = _transformed(folder / component, objects)
    return objects


def _kustomization(folder: Path) -> dict[str, Any]:
    (tree,) = load(folder / "kustomization.yaml")
    return tree


def load(path: Path) -> list[dict[str, Any]]:
    """The documents of a YAML file, without aliases between them."""
    # CRDs are megabytes of YAML: libyaml's parser where it is there.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    documents = yaml.load_all(path.read_text(encoding="utf-8"), Loader=loader)
    return [copy.deepcopy(document) for document in documents if document is not None]


def _patch(item: dict[str, Any], operation: dict[str, Any]) -> None:
    """Apply one operation of a JSON patch (RFC 6902). Raises `KeyError`: there is no such place."""
    words = operation["path"].lstrip("/").split("/")
    *parents, last = (word.replace("~1", "/").replace("~0", "~") for word in words)
    node: Any = item
    for word in parents:
        node = node[int(word)] if isinstance(node, list) else node[word]
    place = int(last) if isinstance(node, list) else last
    if operation["op"] in ("replace", "remove"):
        node[place]  # must be there
    if operation["op"] == "remove":
        del node[place]
    else:
        node[place] = copy.deepcopy(operation["value"])


def _rename(node: Any, name: str, image: str) -> None:
    if isinstance(node, dict):
        for key in ("containers", "initContainers"):
            for container in node.get(key) or []:
                if container.get("image") == name:
                    container["image"] = image
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            _rename(child, name, image)


def schemas(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(apiVersion, kind) -> JSON schema, of all CRDs in ``folder``."""
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        for crd in load(path):
            if crd.get("kind") != "CustomResourceDefinition":
                continue
            for version in crd["spec"]["versions"]:
                key = (f"{crd['spec']['group']}/{version['name']}", crd["spec"]["names"]["kind"])
                found[key] = strict(version["schema"]["openAPIV3Schema"])
    return found


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural schema of Kubernetes as a JSON schema that knows no other fields."""
    kept = {k: v for k, v in schema.items() if not k.startswith("x-") and k not in _NO_JSON}
    for key in ("properties", "patternProperties"):
        if key in kept:
            kept[key] = {name: strict(child) for name, child in kept[key].items()}
    for key in ("items", "additionalProperties", "not"):
        if isinstance(kept.get(key), dict):
            kept[key] = strict(kept[key])
    for key in ("allOf", "anyOf", "oneOf"):
        if key in kept:
            kept[key] = [_loose(child) for child in kept[key]]
    if schema.get("x-kubernetes-int-or-string"):
        kept.pop("type", None)
        kept["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    closed = "properties" in kept and "additionalProperties" not in kept
    if closed and not schema.get("x-kubernetes-preserve-unknown-fields"):
        kept["additionalProperties"] = False
    if schema.get("x-kubernetes-embedded-resource"):
        kept["additionalProperties"] = True
    if schema.get("nullable"):
        kept = {"anyOf": [kept, {"type": "null"}]}
    return kept


_NO_JSON = ("nullable", "format", "default", "description", "example", "externalDocs")


def _loose(schema: dict[str, Any]) -> dict[str, Any]:
    """Branches of a structural schema constrain values; they name no fields of their own."""
    return {k: v for k, v in schema.items() if not k.startswith("x-") and k not in _NO_JSON}


_BY_DIGEST = re.compile(r"[^@]+@sha256:([0-9a-f]{64}|DIGEST)")
"""An image by content, or a place to fill in, which no node takes for an image."""


def images(node: Any) -> Iterator[str]:
    """The images of all containers below ``node``."""
    if isinstance(node, dict):
        for key in ("containers", "initContainers"):
            yield from (str(container.get("image")) for container in node.get(key) or [])
        node = list(node.values())
    if isinstance(node, list):
        for child in node:
            yield from images(child)


def problems(item: dict[str, Any], known: dict[tuple[str, str], dict[str, Any]]) -> Iterator[str]:
    """What an API server would refuse in ``item``, and images by tag, a line each."""
    for image in sorted(set(images(item))):
        if not _BY_DIGEST.fullmatch(image):
            yield f"image {image}: not named by digest, as NAME@sha256:... (infra/README.md)"
    schema = known.get((item["apiVersion"], item["kind"]))
    if schema is None:
        return
    for error in sorted(Draft7Validator(schema).iter_errors(item), key=lambda e: list(e.path)):
        yield f"{'.'.join(map(str, error.path)) or '.'}: {error.message[:300]}"


def main() -> int:
    folder = sys.argv[1] if len(sys.argv) == 2 else os.environ.get("ACE_RAY_CRDS", "")
    if not folder or not Path(folder).is_dir():
        print("usage: python infra/validate.py FOLDER, which holds the CRDs", file=sys.stderr)
        return 2
    known = schemas(Path(folder))
    failed = 0
    for name in FOLDERS:
        for item in render(KUBERAY / name):
            found = list(problems(item, known))
            failed += len(found)
            what = f"{name}: {item['kind']} {item['metadata']['name']}"
            checked = (item["apiVersion"], item["kind"]) in known
            print(f"{'FAIL' if found else 'ok  ' if checked else '-   '} {what}")
            for line in found:
                print(f"       {line}")
    print(f"{len(known)} schemas, {failed} problem(s); '-': no CRD for this kind")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
