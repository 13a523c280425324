== RESTRICTED
w = 'A'
'A' = w
w IN ('A') OR w LIKE 'Z'
w <> 'B'
NOT (w = 'B')
w LIKE 'A%'
w >= 'B'
w BETWEEN 'A' AND 'A'
w IS NULL
w = NULL
w LIKE 'Z'
w = 'A' AND x > 10
w = 'A' OR w IS NULL
lower(w) = 'a'
w IN (SELECT w FROM plans WHERE price > 15)
1 = 0
