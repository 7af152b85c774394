"""Templates of the pages: escaped whatever they hold, in the report's own style, without a script."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import iotrial
from iotrial.legible import shown, shown_lines
from iotrial.report.notation import elided, percent
from iotrial.report.templating import environment
from iotrial.units import format_duration

if TYPE_CHECKING:
    from jinja2 import Environment


def page(name: str, **values: object) -> bytes:
    """The page of a template, as UTF-8; what UTF-8 cannot say is replaced."""
    given: Mapping[str, object] = {
        "version": iotrial.__version__,
        "warnings": (),
        "refresh": None,
        "style": style_mark(),
        **values,
    }
    text = _environment().get_template(name).render(given)
    return text.encode("utf-8", "replace")


def said_page(title: str, text: str, hint: str | None = None, *, refresh: int | None = None) -> bytes:
    """A page that says one thing."""
    return page("said.html.j2", title=title, text=text, hint=hint, refresh=refresh)


def warm() -> None:
    """Whatever the first page would wait for."""
    templates = _environment()
    for name in templates.list_templates():
        templates.get_template(name)
    style_mark()


@cache
def style() -> bytes:
    """The style sheet: the report's, and what lists and forms need besides."""
    report = files("iotrial.report").joinpath("templates", "report.css").read_bytes()
    return report + b"\n" + files("iotrial.serve").joinpath("templates", "serve.css").read_bytes()


@cache
def style_mark() -> str:
    """Changes with the style sheet, so that a browser may keep it."""
    import hashlib

    return hashlib.sha256(style()).hexdigest()[:12]


@cache
def _environment() -> Environment:
    return environment(
        "iotrial.serve",
        shown=shown,
        shown_lines=shown_lines,
        elided=elided,
        percent=percent,
        duration=format_duration,
    )
