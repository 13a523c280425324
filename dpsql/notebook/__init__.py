"""The notebook: magic, completion, tables, plots.

magic.py            ``%dpsql`` and ``%%dpsql``
line_commands.py    ``%dpsql connect`` to a server, and the owner's ``%dpsql policy``
panel.py            JupyterLab's panel
guide.py            the magic's flags, and the texts of its help
sessions.py         the open sessions, project settings, and displays of a session
render.py           tables as text and HTML
plots.py            pictures on matplotlib axes
completion.py       tokens of unfinished SQL, and its completion by context
inspection.py       help and completion at the cursor of a magic
lexer.py            colours, for Pygments
prompt.py           the prompt of ``dpsql sql``
"""
