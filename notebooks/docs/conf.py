"""Sphinx configuration: ``sphinx-build notebooks/docs build/docs`` needs the ``docs`` extra and no network."""

from __future__ import annotations

project = "dpsql"
author = "The dpsql authors"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "dpsql"
nb_execution_mode = "off"  # the tests run the notebooks; a build shows what they printed
myst_enable_extensions = ["deflist"]
exclude_patterns = ["build"]
