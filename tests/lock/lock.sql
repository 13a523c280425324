== STATEMENTS
SELECT COUNT(*) AS n, AVG(amount) AS a FROM visits
SELECT note, COUNT(*) AS n, SUM(amount) AS s FROM visits GROUP BY note
SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward
SELECT MEDIAN(amount) AS m FROM visits
SELECT COUNT(DISTINCT note) AS n FROM visits
SELECT HISTOGRAM(amount, [10, 50]) AS h FROM visits
SELECT COUNT(*) AS n FROM visits AS a JOIN visits AS b USING (patient_id)
SELECT COUNT(*) AS n FROM visits AS v WHERE EXISTS (SELECT 1 FROM visits w WHERE w.patient_id = v.patient_id AND w.amount > 5)
SELECT WITH PTR MODE(note) AS m FROM visits
SELECT WITH STABLE ward, IQR(amount) AS w, TRIMMED_MEAN(amount, 0.1) AS m FROM visits GROUP BY ward
SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) AVG(amount) AS a FROM visits
SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) CORR(amount, ward) AS a FROM visits
SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) CORR(EXP(amount), patient_id) AS a FROM visits
SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) STDDEV(EXP(amount)) AS a, COUNT(*) AS n, VARIANCE(patient_id) AS b FROM visits
SELECT WITH SUBSAMPLE OPTIONS (blocks = 10, bounds = (0, 100)) AVG(v) FROM (SELECT ward, STDDEV(amount) AS v, AVG(amount) AS a FROM visits GROUP BY ward)
WITH p(x) AS (VALUES (1.0), (2.5)) SELECT EXPMECH(COUNT(*) FILTER (WHERE amount >= x)) OVER p AS w FROM visits
