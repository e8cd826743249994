"""Changes single values in YAML text and leaves all else as its author wrote it, comments too."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from hpcddp.cluster.yamlfile import parse_yaml
from hpcddp.core.errors import UsageError

WIDTH = 100


def with_value(text: str, path: Sequence[str], value: object) -> str:
    """The text with the value at that path of mappings; what of the path is not there is made. UsageError where the path leads
    through something that is no mapping."""
    import yaml

    node = yaml.compose(text, Loader=yaml.SafeLoader)
    for depth, key in enumerate(path):
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{'.'.join(path[:depth]) or 'the document'} is no mapping")
        pair = next((pair for pair in node.value if pair[0].value == key), None)
        if pair is None:
            return _added(text, node, path[depth:], value)
        if depth == len(path) - 1 or _is_empty(pair[1]):
            return _replaced(text, pair[0], pair[1], _nested(path[depth + 1 :], value))
        node = pair[1]
    raise UsageError("no path is given")


def _is_empty(node: Any) -> bool:
    return str(node.tag).endswith(":null") or node.value == []


def _nested(path: Sequence[str], value: object) -> object:
    for key in reversed(path):
        value = {key: value}
    return value


def _replaced(text: str, key: Any, node: Any, value: object) -> str:
    """What stands between key and value stays where both are on one line."""
    begin, end = node.start_mark.index, _end(text, node)
    if "\n" in text[key.end_mark.index : begin] or begin == end:
        begin, between = text.index(":", key.end_mark.index) + 1, " "
    else:
        between = ""
    return text[:begin] + between + _flow(value, key.start_mark.column) + text[end:]


def _added(text: str, node: Any, path: Sequence[str], value: object) -> str:
    """Behind the mapping's last entry."""
    key, nested = path[0], _nested(path[1:], value)
    end = _end(text, node)
    if node.flow_style:
        close = text.rindex("}", 0, end)
        comma = ", " if node.value else ""
        return text[:close].rstrip() + f"{comma}{_scalar(key)}: {_flow(nested, 0)}" + text[close:]
    column = node.value[0][0].start_mark.column
    line_end = text.find("\n", end)
    line_end = len(text) if line_end < 0 else line_end
    return f"{text[:line_end]}\n{' ' * column}{_scalar(key)}: {_flow(nested, column)}{text[line_end:]}"


def _end(text: str, node: Any) -> int:
    """Where a value ends, without the blank lines and comments that PyYAML counts to a block."""
    if isinstance(node.value, list) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end(text, last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return len(text[:end].rstrip()) if end > node.start_mark.index else end


def _flow(value: object, column: int) -> str:
    """In one line, or, where that is too long, an entry a line."""
    line = _one_line(value)
    if not isinstance(value, Mapping) or column + len(line) <= WIDTH:
        return line
    indent = " " * (column + 2)
    entries = (f"{indent}{_scalar(key)}: {_flow(item, column + 2)}" for key, item in value.items())
    return "{\n" + ",\n".join(entries) + "}"


def _one_line(value: object) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_scalar(key)}: {_one_line(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_one_line, value)) + "]"
    return _scalar(value)


def _scalar(value: object) -> str:
    """Words as they are where YAML takes them for text, quoted otherwise."""
    plain = isinstance(value, str) and value.replace("_", "a").replace("-", "a").replace(".", "a").isalnum()
    return value if isinstance(value, str) and plain and not _is_special(value) else json.dumps(value, ensure_ascii=False)


def _is_special(word: str) -> bool:
    return parse_yaml(word, "a word") != word or word[0] == "-"
