"""Sphinx's settings for the book; book/pages.py writes the pages that it reads,
book/__main__.py adds two folders.
"""

from __future__ import annotations

from book.site import base_url
from scripts.notebooks import address

project = "GPU training workbook"
author = "the workbook's authors"
copyright = "the workbook's authors; code MIT, text CC BY 4.0"  # noqa: A001  # Sphinx reads this name
language = "en"
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "book.words",
    "book.docstrings",
    "book.site",
]

# book/run.py has run the notebooks. Nothing comes from a network: no widgets' scripts,
# no formulas ($ is a price).
nb_execution_mode = "off"
nb_ipywidgets_js: dict[str, dict[str, str]] = {}
nb_merge_streams = True
myst_enable_extensions: list[str] = []
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
# signatures on one line; units and kinds are in the docstrings
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
add_module_names = False
# --use_fast_math and SOFTWARE["torch"] stay what a reader types
smartquotes = False
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = project
# "" while the workbook has no address: no site map then
html_baseurl = base_url(address())
html_favicon = "static/icon.svg"
html_css_files = ["book.css"]
html_js_files = ["book.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    # The system's own fonts, so that nothing is fetched.
    "light_css_variables": {
        "color-brand-primary": "#0b5394",
        "color-brand-content": "#0b5394",
    },
    "dark_css_variables": {
        "color-brand-primary": "#8ab8e6",
        "color-brand-content": "#8ab8e6",
    },
}
