"""The persons of UCI's Adult (Becker and Kohavi 1996, CC BY 4.0): how many there are of each age.

Counts of the rows of ``adult.data`` (32,561 persons, MD5 5d7c39d7b8804f071cdd1f2a7c460872).
"""

from __future__ import annotations

ADULT_AGES = (
    395, 550, 712, 753, 720, 765, 877, 798, 841, 785, 835, 867, 813, 861, 888, 828, 875, 886, 876, 898, 858, 827, 816, 794, 808,
    780, 770, 724, 734, 737, 708, 543, 577, 602, 595, 478, 464, 415, 419, 366, 358, 366, 355, 312, 300, 258, 230, 208, 178, 150,
    151, 120, 108, 89, 72, 67, 64, 51, 45, 46, 29, 23, 22, 22, 20, 12, 6, 10, 3, 1, 1, 3, 0, 43,
)  # fmt: skip
"""The persons by age from 17 on, 32,561 in all."""
