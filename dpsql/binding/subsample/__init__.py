"""SELECT WITH SUBSAMPLE.

subsample_block.py  the block: its options, its blocks of units, the combiners of their results
block_queries.py    the queries of all blocks: lifted into one, or one by one
"""
