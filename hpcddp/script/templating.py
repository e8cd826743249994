"""Templates of job scripts, run in Jinja's sandbox: one that came with somebody's profile can compute text, and nothing else.

Those of templates/ run in it, too: a script needs values and no Python, and a single way to render leaves no gap. What a template
prints becomes a script, though, and so runs as the user's code.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcddp import __version__
from hpcddp.core.errors import UsageError

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

FOLDER = Path(__file__).parents[1] / "templates"
Filters = Mapping[str, Callable[[Any], str]]


def render_template(template: str, filters: Filters, values: Mapping[str, object], *, marks: bool = False) -> str:
    """The text of `template`, an absolute path or a name in templates/; UsageError names the file and line of what is wrong. With
    `marks`, each piece of literal text has its place in the template before it (template_marks.py).
    """
    import jinja2

    file = Path(template)
    folders = (str(file.parent), str(FOLDER)) if file.is_absolute() else (str(FOLDER),)
    try:
        environment = _environment(*folders, marks=marks)
        environment.filters.update(filters)
        return environment.get_template(file.name).render(values)
    except UsageError:
        raise
    except jinja2.TemplateNotFound as error:
        place = _place(error, folders) or template
        raise UsageError(f"{place}: no template `{error.name}` in {' or '.join(folders)}") from error
    except jinja2.TemplateSyntaxError as error:
        raise UsageError(f"{error.filename or template}:{error.lineno}: {error.message}") from error
    except Exception as error:
        place = _place(error, folders) or template
        raise UsageError(f"{place}: {error}. What a template may use is in {FOLDER / 'base.sh.j2'}") from error


def _place(error: Exception, folders: tuple[str, ...]) -> str | None:
    """`FILE:LINE` of the template that raised it."""
    import traceback  # 2 ms of every script, for errors only

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(folders)]
    return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else None


@functools.cache
def _environment(*folders: str, marks: bool = False) -> SandboxedEnvironment:
    import jinja2
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Below(jinja2.FileSystemLoader):
        """Files below a folder, not what a link in it leads to."""

        def get_source(self, environment: jinja2.Environment, template: str) -> Any:
            found = super().get_source(environment, template)
            file = Path(str(found[1])).resolve()
            if not any(Path(folder).resolve() in file.parents for folder in self.searchpath):
                raise UsageError(f"{found[1]}: a link to {file}. A template must lie below its profile's folder.")
            return found

    class Compiled(jinja2.FileSystemBytecodeCache):
        """Beside Python's bytecode of this package, on Python's terms: to compile templates takes a quarter of `render`."""

        def dump_bytecode(self, bucket: jinja2.bccache.Bucket) -> None:
            if not sys.dont_write_bytecode:
                with contextlib.suppress(OSError):
                    super().dump_bytecode(bucket)

    installed = f"{__version__}-{Path(jinja2.__file__).stat().st_mtime_ns ^ Path(__file__).stat().st_mtime_ns:x}"
    return ImmutableSandboxedEnvironment(
        loader=Below(folders),
        bytecode_cache=Compiled(str(FOLDER / "__pycache__"), f"{installed}-%s") if len(folders) == 1 and not marks else None,
        undefined=jinja2.StrictUndefined,
        extensions=["hpcddp.script.template_marks.Marks"] if marks else [],
        optimized=False,  # folding constants costs 2 ms, and a template is rendered once
        autoescape=False,  # shell text: every value goes through `word`
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
