"""The configuration of the pages: sphinx-build -W docs docs/_build/html."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

from twinrank import __version__ as release

project = "TwinRank"
author = "The TwinRank developers"
project_copyright = "The TwinRank developers, Apache-2.0"
version = release

extensions = ["myst_parser", "sphinx.ext.autodoc", "mathml", "docstrings", "commands"]
exclude_patterns = ["_build"]
smartquotes = False  # --option stays --option
nitpicky = True
# Types that api.md does not list stay plain text: internal ones, and those of torch and NumPy.
nitpick_ignore_regex = [("py:.*", r"(?!twinrank\.).*"), ("py:.*", r"twinrank\.\w+\..*")]

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_mock_imports = ["sentence_transformers"]  # an optional dependency of twinrank.text
autodoc_typehints = "none"  # docstrings state the types
python_maximum_signature_line_length = 88
add_module_names = False

html_theme = "furo"
html_title = "TwinRank"
html_static_path = ["_static"]
html_css_files = ["twinrank.css"]
html_math_renderer = "mathml"
html_copy_source = False
html_show_sphinx = False
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_theme_options = {
    "light_css_variables": {
        "color-brand-primary": "#2f6fab",
        "color-brand-content": "#2f6fab",
        "color-brand-visited": "#2f6fab",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8ab8e6",
        "color-brand-content": "#8ab8e6",
        "color-brand-visited": "#8ab8e6",
    },
}
