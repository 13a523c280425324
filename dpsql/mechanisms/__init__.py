"""Mechanisms: exact statistics in, private answers and their events out.

base.py                 the contract of an operator
queries.py              queries as values, and the printer of their text
aggregation.py          noisy aggregates of groups; as much noise as an error allows
per_group.py            noise per group, and the choice of private groups, also under one Rényi order
moments.py              formulas over noisy moments, and their expected errors
histograms.py           statistics of exact histograms
quantiles.py            quantiles by the exponential mechanism
quantile_tree.py        quantiles from one noisy tree
order_statistics.py     exact order statistics; the graded grid
auto_bounds.py          clipping bounds found privately
contribution_caps.py    caps found privately; the report of cuts
empty_groups.py         groups that differ from an empty one
unit_parts.py           totals in parts of the units
strategies.py           strategies and their expected errors
marginals.py            marginals by ResidualPlanner; one Gaussian calibration for several blocks
consistency.py          cells that add up
ordered_noise.py        trees and square-root noise for ordered groups
window_widths.py        half widths of sums over neighbouring groups
inverse_sensitivity.py  the inverse sensitivity mechanism
fast/                   quicker routes to the same exact numbers
ptr/                    propose, test, release
selection/              sparse vector and exponential mechanism
subsample/              subsample and aggregate
synthetic/              synthetic rows
"""
