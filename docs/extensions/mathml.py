"""Formulas as MathML, which browsers render themselves: the built pages load no script and no font for them."""

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.writers.html5 import HTML5Translator

# Macros that the converter does not know, and letters that MathML Core does not restyle (\mathbb E without braces).
_NOT_RENDERED = re.compile(r'\\\w+|mathvariant="(?!normal)[^"]*"')


def _inline(page: HTML5Translator, node: nodes.math) -> None:
    page.body.append(_mathml(node, "inline"))
    raise nodes.SkipNode


def _block(page: HTML5Translator, node: nodes.math_block) -> None:
    page.body.append(f'<div class="math">{_mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.Element, display: str) -> str:
    text = node.astext()
    element = convert(text, display=display)
    if unknown := _NOT_RENDERED.search(element):
        raise ExtensionError(f"{node.source}: browsers show {unknown.group()!r} as it is in the formula {text!r}")
    return element


def setup(app: Sphinx) -> dict[str, bool]:
    """Registers the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
