"""A document as YAML: what is read back is what was written."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpcddp.cluster.profile import Fact
from hpcddp.cluster.yaml_text import WIDTH, yaml_text
from hpcddp.cluster.yamlfile import parse_yaml

TEXTS = st.one_of(
    st.sampled_from(
        [
            "gn[01-06]",
            "a: b",
            "# c",
            "1:30:00",
            "no",
            "null",
            "?",
            "it's",
            'say "so"',
            "{x}",
            "&a",
            "- x",
            "12",
            "~",
            "",
            "0E0",
            "0o17",
            "1e5",
            ".5",
            "TRUE",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), max_size=300),
)


@given(value=TEXTS, note=st.none() | TEXTS, names=st.lists(TEXTS, max_size=3))
def test_every_text_comes_back(value: str, note: str | None, names: list[str]) -> None:
    """Whatever Slurm calls its things."""
    fact = Fact(value=value, grade="?", source="slurm", note=note)
    document = {
        "title": value,
        "node_types": {"x": {"names": fact}},
        "slurm": {"qos": [{"name": fact}, {"name": value}]},
        "list": names,
    }
    plain = {"value": value, "grade": "?", "source": "slurm", **({} if note is None else {"note": note})}
    read = parse_yaml(yaml_text(document), "test")
    assert read == {
        "title": value,
        "node_types": {"x": {"names": plain}},
        "slurm": {"qos": [{"name": plain}, {"name": value}]},
        "list": names,
    }


def test_long_facts_take_lines_of_their_own() -> None:
    """No line is wider than WIDTH where words can be broken."""
    fact = Fact(value=4, grade="A", source="slurm", note="word " * 60)
    text = yaml_text({"node_types": {"x": {"gpus": fact}}})
    assert max(map(len, text.splitlines())) <= WIDTH
    assert parse_yaml(text, "test")["node_types"]["x"]["gpus"]["note"] == " ".join(["word"] * 60)


def test_lines_of_commands_come_back() -> None:
    """As a block where YAML keeps it as it is; an entry without keys is one, too."""
    values = ["for x in 1; do\n  echo $x \n\ndone\n", "a\nb", " a\nb", "a\n\n", "\n", [{}], [{"a": "b\nc"}, {"d": [{}]}]]
    document = {f"key{i}": value for i, value in enumerate(values)}
    assert parse_yaml(yaml_text({**document, "below": document}), "test") == {**document, "below": document}
