"""Configuration of Sphinx. Pages about tables of the code are generated before the sources are read (`_ext/generate.py`)."""

import sys
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent)]

project = "polyker"
author = "the authors of polyker"
try:
    release = metadata.version("polyker")
except metadata.PackageNotFoundError:
    release = "from a clone"
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton", "generate"]
exclude_patterns = ["_build", "_generated/*.md"]
html_theme = "furo"
html_title = f"polyker {release}"
nitpicky = False

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist"]
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_typehints = "none"
autodoc_member_order = "bysource"
# Blocks without a language are the notation, printed schedules, or output.
highlight_language = "text"
