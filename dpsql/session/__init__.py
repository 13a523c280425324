"""Sessions: from a statement's text to its private answer.

interface.py            the methods of a session, here or on a server
session.py              the local session
pipeline.py             the steps of a statement, in order
compiler.py             binds statements in their cell, and checks their plans
gated_queries.py        exact queries: proved and bound before payment, read after it
stored_blocks.py        stored answers: free, or paid and drawn
block_keys.py           keys under which answers are stored
session_state.py        kept results and open thresholds
releases.py             named answers that every analyst reads
declared_statements.py  statements that are priced together, then run
result.py               the result of a statement
outcomes.py             charges in words, and facts about the last statement
explain.py              explains plans, prices, answers and refusals
explanation.py          values of explanations, and their text, HTML and JSON
show.py                 the relations of SHOW, DESCRIBE and SUMMARIZE
description.py          plans, prices, columns and the last outcome, described without drawing
"""
