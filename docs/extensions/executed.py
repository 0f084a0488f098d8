"""Pages whose examples are run when the page is built, with what they print and draw below them.

``executed_pages`` in conf.py names the pages. Blocks of Python share one namespace, blocks of shell one folder; both
are gone after the page. As in a notebook, a block shows what it prints, the value of its last line and its figures. A
block that fails ends the build.
"""

import ast
import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib import pyplot
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

from rido.plots.report import PAGE_SETTINGS, svg_element

_BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
_SIZE = (5.6, 2.2)  # inches of a figure, unless the block says otherwise


class Session:
    """The state that the blocks of one page share.

    Args:
        page: name of the page, for errors.
    """

    def __init__(self, page: str) -> None:
        self._page = page
        self._namespace: dict[str, Any] = {"__name__": "__main__"}

    def run(self, block: re.Match[str]) -> str:
        """Runs a block of the page and returns it with what it showed."""
        language, text = block.groups()
        try:
            shown, figures = self._python(text) if language == "python" else (self._shell(text), "")
        except Exception as error:
            raise ExtensionError(f"{self._page}: this example failed: {error!r}\n{text}") from error
        printed = f"\n```{{code-block}} text\n:class: output\n{shown.rstrip()}\n```\n" if shown.strip() else ""
        return block.group() + printed + figures

    def _python(self, text: str) -> tuple[str, str]:
        tree, output = ast.parse(text), io.StringIO()
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            exec(compile(tree, self._page, "exec"), self._namespace)
            if last is not None:
                value = eval(compile(ast.Expression(last.value), self._page, "eval"), self._namespace)
                if value is not None and not pyplot.get_fignums():
                    print(repr(value))
        title = f"drawn by {text.splitlines()[-1]}"
        figures = [svg_element(pyplot.figure(number), title) for number in pyplot.get_fignums()]
        pyplot.close("all")
        return output.getvalue(), "".join(
            f'\n```{{raw}} html\n<div class="figure">{svg}</div>\n```\n' for svg in figures
        )

    def _shell(self, text: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            ["sh", "-e", "-c", text], env=os.environ | {"PATH": path}, capture_output=True, text=True, timeout=120
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout + done.stderr


def _execute(app: Sphinx, page: str, source: list[str]) -> None:
    if page not in app.config.executed_pages:
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), matplotlib.rc_context(PAGE_SETTINGS):
        matplotlib.rcParams["figure.figsize"] = _SIZE
        pyplot.switch_backend("Agg")
        source[0] = _BLOCK.sub(Session(page).run, source[0])


def setup(app: Sphinx) -> dict[str, bool]:
    """Runs the examples when a page is read; a change in rido may change what they show, so they run at every build."""
    app.add_config_value("executed_pages", [], "env")
    app.connect("source-read", _execute)
    app.connect("env-get-outdated", lambda app, *changes: app.config.executed_pages)
    return {"parallel_read_safe": False}
