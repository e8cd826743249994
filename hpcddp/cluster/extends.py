"""`extends: rcc`: a profile that says only what differs from another one.

Mappings are merged key by key, down to values and their facts; a list takes the other's place. Null takes away what the base
says: the value is null where its key may be that, otherwise it is as if nobody had written it. `schema`, `name` and `extends` are
each file's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from hpcddp.cluster.kinds import accepts_null, item_kind
from hpcddp.cluster.profile import ClusterProfile, is_fact
from hpcddp.cluster.profile_checks import refuse_newer
from hpcddp.cluster.profile_names import is_below, is_profile_file, profile_names, profile_path
from hpcddp.cluster.yamlfile import located, read_yaml
from hpcddp.core.errors import UsageError
from hpcddp.core.schema import Path, SchemaError, decode

NOT_INHERITED = ("schema", "name", "extends")


@dataclass(frozen=True)
class Layer:
    """What one file of a chain of profiles says."""

    file: FilePath
    data: Any


def extended(file: FilePath, data: Any) -> tuple[Any, Callable[[Path], FilePath]]:
    """What `data` in `file` and the profiles below it come to, with facts, and which file says what is at a path."""
    layers = _layers(Layer(file, data))
    *above, root = layers
    merged = _inherited(root)
    for layer in reversed(above):
        merged = _merged(merged, _inherited(layer), ClusterProfile)
    own = {key: data[key] for key in NOT_INHERITED if key in data}
    # what none of them says is missing in the first
    return {**own, **merged}, lambda path: next((each.file for each in layers if _says(each.data, path)), file)


def _layers(own: Layer) -> list[Layer]:
    """The profile, the one that it extends, and so on."""
    layers = [own]
    while (base := _base(layers[-1])) is not None:
        layers.append(Layer(base, read_yaml(base)))
        if base.resolve() in [layer.file.resolve() for layer in layers[:-1]]:
            chain = " -> ".join(str(layer.file) for layer in layers)
            raise located(SchemaError(("extends",), f"`extends` goes in a circle: {chain}"), layers[-2].file)
    for over, layer in itertools.pairwise(layers):
        _check_base(over, layer)
    if layers[1:]:
        _check_name(own)
    return layers


def _base(layer: Layer) -> FilePath | None:
    """The file that a profile extends."""
    base = layer.data.get("extends") if isinstance(layer.data, dict) else None
    if base is None:
        return None
    try:
        decode(str, base)
        if not is_profile_file(base):
            return profile_path(base)
        file: FilePath = layer.file.parent / base
        if not is_below(file, layer.file.parent):
            raise UsageError(
                f"`{base}` is in another folder. Move that profile beside this one, or to the folder of your profiles."
            )
        if not file.is_file():
            raise UsageError(f"no file {file}: `extends` is the name of a profile, or a file beside this one")
    except UsageError as error:
        raise located(SchemaError(("extends",), str(error)), layer.file) from error
    return file


def _check_base(over: Layer, base: Layer) -> None:
    """A base is read by its own rules: a profile of this schema, whose sources keep their meaning."""
    try:
        refuse_newer(base.data)
        if not isinstance(base.data, dict) or base.data.get("schema") != 1:
            raise SchemaError(("schema",), "a profile with `schema: 1` is expected")
    except SchemaError as error:
        raise located(error, base.file) from error
    own, sources = (data if isinstance(data := layer.data.get("sources"), dict) else {} for layer in (over, base))
    for key in own:
        if key in sources and own[key] != sources[key]:
            words = f"source `{key}` is a different one in {base.file}, whose facts name it: choose another key"
            raise located(SchemaError(("sources", key), words), over.file)


def _check_name(layer: Layer) -> None:
    """Results of a cluster that is not what the base says must not carry the base's name."""
    if "name" not in layer.data:
        raise located(SchemaError((), "`name` is missing. A profile that extends another needs a name of its own."), layer.file)
    name = layer.data["name"]
    if name in profile_names():
        words = f"`{name}` is also the name of a shipped profile. Choose another name."
        raise located(SchemaError(("name",), words), layer.file)


def _inherited(layer: Layer) -> Any:
    return {key: item for key, item in layer.data.items() if key not in NOT_INHERITED}


def _merged(base: Any, own: Any, kind: Any) -> Any:
    """`own` over `base`, both of the type `kind`."""
    if isinstance(base, dict) and isinstance(own, dict) and is_fact(base) and not is_fact(own):
        base = base["value"]  # a mapping that was one fact, and now is partly another's
    if not isinstance(base, dict) or not isinstance(own, dict) or is_fact(own):
        return own
    merged = dict(base)
    for key, item in own.items():
        below = item_kind(kind, key)
        if key not in base:
            merged[key] = item
        elif item is None and not accepts_null(below):
            del merged[key]
        else:
            merged[key] = _merged(base[key], item, below)
    return merged


def _says(data: Any, path: Path) -> bool:
    """Whether a file decides what is at `path`: it has something there, or a list, a fact or a plain value above it."""
    for part in path:
        if not isinstance(data, dict) or is_fact(data):
            return True
        if part not in data:
            return False
        data = data[part]
    return True
