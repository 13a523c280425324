"""Exact queries: the SQL over private rows.

exact_query.py           the query of a private block, plain and packed
candidate_statistics.py  statistics of public candidates
normal_form.py           the normal form: every name is ours; texts without their values, and indented for people
gate.py                  texts as they are run, compared and shown
"""
