"""SELECT WITH SUBSAMPLE.

subsample_block.py  the block, and the size of its blocks of units
block_queries.py    the queries of all blocks: lifted into one, or one by one
combiners.py        options and combiners of block results
"""
