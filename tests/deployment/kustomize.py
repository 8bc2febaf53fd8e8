"""Renders a kustomization as `kubectl kustomize` does, for the features that ours use.

Whatever else a kustomization asks for is an error, so that no manifest is checked in a form which nobody
will ever apply.
"""

import copy
from pathlib import Path

import yaml

# The fields of a kustomization that this renderer supports.
FIELDS = {"apiVersion", "kind", "resources", "components", "patches", "images"}

# The keys by which the entries of a list are merged with those of a patch. Other lists are replaced.
MERGE_KEYS = {
    "containers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
}


class Unsupported(Exception):
    """The kustomization uses something that this renderer does not know."""


def documents(path):
    """The objects in a file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def render(directory):
    """The objects of a kustomization."""
    return add([], directory, "Kustomization")


def add(objects, directory, kind):
    """Adds what a kustomization has to these objects, which a component may also change."""
    directory = Path(directory)
    (kustomization,) = documents(directory / "kustomization.yaml")
    unknown = set(kustomization) - FIELDS
    if unknown or kustomization["kind"] != kind:
        raise Unsupported(f"{directory}: {kustomization['kind']}, {sorted(unknown)}")
    objects = list(objects)
    for resource in kustomization.get("resources", []):
        path = directory / resource
        objects += render(path) if path.is_dir() else documents(path)
    for component in kustomization.get("components", []):
        objects = add(objects, directory / component, "Component")
    identities = [identity(o) for o in objects]
    if len(set(identities)) != len(identities):
        raise Unsupported(f"{directory}: two objects have one name")
    for patch in kustomization.get("patches", []):
        if set(patch) != {"path"}:
            raise Unsupported(f"{directory}: a patch with {sorted(patch)}")
        for document in documents(directory / patch["path"]):
            apply(objects, document)
    for image in kustomization.get("images", []):
        if set(image) != {"name", "newName", "newTag"}:
            raise Unsupported(f"{directory}: an image with {sorted(image)}")
        for container in containers(objects):
            if container["image"].split(":")[0] == image["name"]:
                container["image"] = f"{image['newName']}:{image['newTag']}"
    return objects


def identity(o):
    """What a patch finds an object by."""
    return (o["apiVersion"], o["kind"], o["metadata"]["name"])


def containers(objects):
    """Every container of every pod template."""
    for o in objects:
        template = o["spec"].get("template", {})
        yield from template.get("spec", {}).get("containers", [])


def apply(objects, patch):
    """Applies a strategic merge patch to the object that it names."""
    matching = [o for o in objects if identity(o) == identity(patch)]
    if len(matching) != 1:
        raise Unsupported(f"{identity(patch)} is there {len(matching)} times")
    if "$patch" in patch:
        if patch["$patch"] != "delete":
            raise Unsupported(f"$patch: {patch['$patch']}")
        objects.remove(matching[0])
        return
    merge(matching[0], patch)


def merge(into, patch):
    """Merges maps: null deletes, lists are merged by their key or replaced."""
    for key, value in patch.items():
        if key.startswith("$"):
            raise Unsupported(key)
        if value is None:
            into.pop(key, None)
        elif isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        elif isinstance(value, list) and key in MERGE_KEYS and key in into:
            merge_list(into[key], value, MERGE_KEYS[key])
        else:
            into[key] = copy.deepcopy(value)


def merge_list(into, patch, key):
    """Merges the entries that have the same key. Those of the patch come first, in its order."""
    first = []
    for entry in patch:
        merged = next((old for old in into if old[key] == entry[key]), None)
        if merged is None:
            merged = copy.deepcopy(entry)
        else:
            merge(merged, entry)
        first.append(merged)
    into[:] = first + [old for old in into if all(old is not entry for entry in first)]
