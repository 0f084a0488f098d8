"""How the documentation is built: ``sphinx-build -W docs docs/_build``."""

import rido

project = "rido"
author = "The rido developers"
version = release = rido.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
exclude_patterns = ["_build", "README*"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
suppress_warnings = ["ref.python"]  # two classes are called Comparison: of policies and of strategies
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes of dataclasses are documented once, in the class

html_theme = "furo"
html_title = f"rido {release}"
