"""Sphinx configuration of the site that ``python notebooks/make_site.py`` assembles and builds, without a network."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from dpsql.notebook.lexer import DpsqlLexer

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))  # pages import example.py
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

project = "dpsql"
author = "The dpsql authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "dpsql"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = html_show_sourcelink = html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autodoc_member_order = "bysource"
nb_execution_mode = os.environ.get("DPSQL_SITE_EXECUTION", "force")
nb_execution_excludepatterns = ["stories/*"]  # shown with their stored outputs
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_execution_raise_on_error = True
nb_merge_streams = True
pygments_style = "default"
suppress_warnings = ["myst-nb.lexer"]  # choose_lexers sets the cells' lexers


class Shot(SphinxDirective):
    """A screenshot in light and dark. The content is its caption and its alternative text.

    notebooks/make_shots.py makes screenshots. Without them, the picture `instead` is shown, if any.
    """

    required_arguments = 1
    has_content = True
    option_spec: ClassVar[dict[str, Any]] = {"instead": directives.path}

    def run(self) -> list[nodes.Node]:
        name, said = self.arguments[0], " ".join(self.content)
        places = {look: f"shots/{name}-{look}.png" for look in ("light", "dark")}
        figure = nodes.figure()
        if not all((HERE / place).exists() for place in places.values()):
            if "instead" not in self.options:
                return []
            return [nodes.image(uri=f"/{self.options['instead']}", alt=said)]
        for look, place in places.items():
            figure += nodes.image(uri=f"/{place}", alt=said, classes=[f"only-{look}", "shot"])
        figure += nodes.caption(said, said)
        return [figure]


def choose_lexers(app: Sphinx, document: nodes.document) -> None:
    """Highlight cells of the magic as SQL, other cells as IPython."""
    for cell in document.findall(
        lambda node: isinstance(node, nodes.Element) and "cell_input" in node.get("classes", ())
    ):
        for block in cell.findall(nodes.literal_block):
            block["language"] = "dpsql" if re.match(r"%%?dpsql", block.astext()) else "ipython3"


def setup(app: Sphinx) -> None:
    app.add_directive("shot", Shot)
    app.add_lexer("dpsql", DpsqlLexer)
    app.connect("doctree-read", choose_lexers)
