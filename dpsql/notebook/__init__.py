"""The notebook: magic, completion, tables, plots.

magic.py            ``%dpsql`` and ``%%dpsql``, with connections to servers and the owner's commands
guide.py            the magic's flags, and the texts of its help
sessions.py         the open sessions, project settings, and displays of a session
render.py           tables as text and HTML
plots.py            pictures on matplotlib axes
panel.py            the budget panel of JupyterLab
completion.py       completion of SQL by context
matcher.py          completion in JupyterLab and IPython
inspection.py       help on one word
sql_shape.py        tokens and relations of unfinished SQL
lexer.py            colours, for Pygments
prompt.py           the prompt of ``dpsql sql``
"""
