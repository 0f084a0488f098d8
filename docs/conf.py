"""How the documentation is built: ``sphinx-build -W docs docs/_build``."""

import sys
from pathlib import Path

import rido

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

project = "rido"
author = "The rido developers"
version = release = rido.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "commands", "executed", "mathml"]
executed_pages = ["tutorial"]
myst_enable_extensions = ["deflist", "dollarmath"]
myst_heading_anchors = 2
exclude_patterns = ["_build", "README*"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["ref.python"]  # two classes are called Comparison: of policies and of strategies
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses are documented once, in the class

smartquotes = False  # -- stays what it is
html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"rido {release}"
html_static_path = ["_static"]
html_css_files = ["rido.css"]
