"""Sessions: from a statement's text to its private answer.

interface.py      the methods of a session, here or on a server
session.py        the local session; plans of statements priced together
pipeline.py       the steps of a statement, in order
session_state.py  kept results and open thresholds
stored_blocks.py  stored answers: free, or paid and drawn
block_keys.py     keys under which answers are stored
result.py         the result of a statement
explain.py        explains plans, prices, answers and refusals
explanation.py    values of explanations, and their text, HTML and JSON
description.py    SHOW, and columns and price before payment
"""
