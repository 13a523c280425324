-- case: patients by gender
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT gender, COUNT(*) FROM patients GROUP BY gender
----
answered
====
-- case: patients who died
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(dod), COUNT(*) - COUNT(dod) FROM patients
----
answered
====
-- case: mortality by kind of admission
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT kind, AVG(died), COUNT(*) FROM admissions GROUP BY kind ORDER BY kind
----
answered
====
-- case: mortality in percent
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- slack: 0.01
SELECT ROUND(100.0 * SUM(died) / COUNT(*), 2) FROM admissions
----
answered
====
-- case: admissions by kind and insurance
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT kind, insurance, COUNT(*) FROM admissions GROUP BY kind, insurance
----
answered
====
-- case: ethnicities with the missing ones
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT ethnicity, COUNT(*) FROM admissions GROUP BY ethnicity
----
answered
====
-- case: ages at admission
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT AVG(date_diff('year', p.dob, a.admitted), contribution_bounds_per_row => (0, 100)) FROM patients p JOIN admissions a ON p.subject_id = a.subject_id
----
answered
====
-- case: a histogram of ages
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT date_diff('year', p.dob, a.admitted) // 10 AS b, COUNT(*) FROM patients p JOIN admissions a USING (subject_id) GROUP BY b ORDER BY b
----
answered
====
-- case: adults only
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(*) FROM patients p JOIN admissions a USING (subject_id) WHERE date_diff('year', p.dob, a.admitted) >= 18
----
answered
====
-- case: days in hospital
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT AVG(date_diff('hour', admitted, discharged) / 24.0, contribution_bounds_per_row => (0, 100)) FROM admissions
----
answered
====
-- case: days in intensive care by unit
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT unit, COUNT(*), AVG(los), STDDEV(los) FROM icustays GROUP BY unit ORDER BY unit
----
answered
====
-- case: stays by admissions
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(DISTINCT i.hadm_id), COUNT(DISTINCT i.subject_id) FROM icustays i
----
answered
====
-- case: stays with admissions
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: a.subject_id
SELECT a.kind, COUNT(*), AVG(i.los) FROM icustays i JOIN admissions a ON i.hadm_id = a.hadm_id GROUP BY a.kind
----
answered
====
-- case: three tables by their own keys
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT p.gender, COUNT(*), AVG(i.los) FROM patients p JOIN admissions a ON p.subject_id = a.subject_id JOIN icustays i ON a.hadm_id = i.hadm_id GROUP BY p.gender
----
answered
====
-- case: stays and patients by the patient
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT p.gender, COUNT(*) FROM patients p JOIN icustays i ON p.subject_id = i.subject_id GROUP BY p.gender
----
answered
====
-- case: heart rates
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT AVG(value), COUNT(value) FROM charts WHERE itemid = 211 AND value < 300
----
answered
====
-- case: measurements without errors
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(*), AVG(value) FROM charts WHERE NOT faulty AND value BETWEEN 0 AND 300
----
answered
====
-- case: measurements by label
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT t.label, COUNT(*), AVG(c.value) FROM charts c JOIN things t ON c.itemid = t.itemid WHERE c.value < 300 GROUP BY t.label ORDER BY t.label
----
answered
====
-- case: a histogram of a measurement
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT FLOOR(value / 20)::INTEGER AS b, COUNT(*) FROM charts WHERE itemid = 211 AND value IS NOT NULL GROUP BY b ORDER BY b
----
answered
====
-- case: a histogram by width_bucket
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- plain: SELECT CASE WHEN value < 0 THEN 0 WHEN value >= 200 THEN 11 ELSE FLOOR(value / 20)::INTEGER + 1 END AS b, COUNT(*) FROM charts WHERE value IS NOT NULL GROUP BY b
SELECT WIDTH_BUCKET(value, 0, 200, 10) AS b, COUNT(*) FROM charts GROUP BY b
----
answered
====
-- case: the worst of each stay
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(*) FROM (SELECT subject_id, icustay_id, MAX(value) AS worst FROM charts WHERE value < 300 GROUP BY subject_id, icustay_id) WHERE worst > 120
----
answered
====
-- case: mean of the worst
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT AVG(worst, contribution_bounds_per_row => (0, 300)) FROM (SELECT subject_id, MAX(value) AS worst FROM charts WHERE value < 300 GROUP BY subject_id)
----
answered
====
-- case: diagnoses by code
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT code, COUNT(*) FROM diagnoses GROUP BY code ORDER BY 2 DESC, code
----
answered
====
-- case: diagnoses by name, all of them
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT c.name, COUNT(d.subject_id) FROM codes c LEFT JOIN diagnoses d ON c.code = d.code GROUP BY c.name ORDER BY c.name
----
answered
====
-- case: first diagnoses
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT code, COUNT(DISTINCT subject_id) FROM diagnoses WHERE seq = 1 GROUP BY code
----
answered
====
-- case: codes by prefix
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT SUBSTR(code, 1, 3) AS p, COUNT(*) FROM diagnoses GROUP BY p
----
answered
====
-- case: patients with two diagnoses
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(DISTINCT a.subject_id) FROM diagnoses a JOIN diagnoses b ON a.subject_id = b.subject_id WHERE a.code = '4019' AND b.code = '25000'
----
answered
====
-- case: codes of old patients
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: p.subject_id
SELECT d.code, COUNT(*) FROM diagnoses d JOIN patients p ON d.subject_id = p.subject_id WHERE p.dob < TIMESTAMP '2080-01-01' GROUP BY d.code
----
answered
====
-- case: ages by code and gender
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT d.code, p.gender, COUNT(*) FROM diagnoses d JOIN patients p USING (subject_id) GROUP BY d.code, p.gender
----
answered
====
-- case: readmissions
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(*) FROM (SELECT subject_id, COUNT(*) AS n FROM admissions GROUP BY subject_id HAVING COUNT(*) > 2)
----
answered
====
-- case: the first admission of each
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(*) FROM (SELECT subject_id, ROW_NUMBER() OVER (PARTITION BY subject_id ORDER BY admitted) AS n, died FROM admissions) WHERE n = 1 AND died = 1
----
answered
====
-- case: time since the last admission
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT AVG(gap, contribution_bounds_per_row => (0, 2000)) FROM (SELECT subject_id, date_diff('day', LAG(admitted) OVER (PARTITION BY subject_id ORDER BY admitted), admitted) AS gap FROM admissions)
----
answered
====
-- case: the last unit, as written
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- reason: unit
SELECT subject_id, LAST(unit) FROM icustays GROUP BY subject_id
----
refused: PrivacyError: subject_id leads to one privacy unit: each group would
====
-- case: a patient's charts, as written
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- reason: rows
SELECT * FROM charts WHERE subject_id = 3 ORDER BY value
----
refused: PrivacyError: rows of charts can't be released.
====
-- case: a case with many arms
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT CASE WHEN kind IN ('EMERGENCY', 'URGENT') THEN 'unplanned' WHEN kind = 'ELECTIVE' THEN 'planned' ELSE 'born' END AS k, AVG(died) FROM admissions GROUP BY k ORDER BY k
----
answered
====
-- case: women's and men's mortality
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT p.gender, SUM(a.died) * 1.0 / COUNT(*) FROM admissions a JOIN patients p USING (subject_id) GROUP BY p.gender ORDER BY p.gender
----
answered
====
-- case: women only
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT gender, COUNT(*) FROM patients WHERE gender = 'F' GROUP BY gender
----
answered
====
-- case: women's stays
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT p.gender, AVG(i.los) FROM patients p JOIN icustays i ON p.subject_id = i.subject_id WHERE p.gender = 'F' GROUP BY p.gender
----
answered
====
-- case: admissions by month of the year
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT month(admitted) AS m, COUNT(*) FROM admissions GROUP BY m ORDER BY m
----
answered
====
-- case: admissions by weekday and hour
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: subject_id
SELECT dayofweek(admitted) AS d, COUNT(*) FROM admissions GROUP BY d ORDER BY d
----
answered
====
-- case: stays without a length
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT COUNT(*) FILTER (WHERE los IS NULL) FROM icustays
----
answered
====
-- case: length by quartile
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT QUANTILE_CONT(los, 0.25) BETWEEN 4.5 AND 5.5 FROM icustays
----
answered
====
-- case: a score of each stay
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
SELECT AVG(score, contribution_bounds_per_row => (0, 10)) FROM (SELECT subject_id, icustay_id, COUNT(*) FILTER (WHERE value > 100) + COUNT(*) FILTER (WHERE value < 50) AS score FROM charts GROUP BY subject_id, icustay_id)
----
answered
====
-- case: charts of stays
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- seen: c.subject_id
SELECT i.unit, AVG(c.value) FROM charts c JOIN icustays i ON c.icustay_id = i.icustay_id AND c.subject_id = i.subject_id WHERE c.value < 300 GROUP BY i.unit
----
answered
====
-- case: codes nobody has
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/cookbook, concepts/demographics, tutorials and notebooks
-- reason: subquery
SELECT COUNT(*) FROM codes c LEFT JOIN diagnoses d ON c.code = d.code WHERE d.code IS NULL
----
refused: PrivacyError: public rows without a matching private row would count
====
-- case: diagnoses by kind of admission
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/comorbidity, which join on hadm_id
-- seen: a.subject_id
SELECT a.kind, COUNT(*) FROM diagnoses d JOIN admissions a ON d.hadm_id = a.hadm_id WHERE d.code = '4019' GROUP BY a.kind
----
answered
====
-- case: codes of those who died in hospital
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/comorbidity, which join on hadm_id
-- seen: d.subject_id
SELECT c.name, COUNT(*) FROM diagnoses d JOIN codes c USING (code) WHERE EXISTS (SELECT 1 FROM admissions a WHERE a.hadm_id = d.hadm_id AND a.died = 1) GROUP BY c.name
----
answered
====
-- case: measurements by stay alone
-- from: MIMIC code repository (MIT-LCP/mimic-code): concepts/firstday, which join on icustay_id
-- seen: c.subject_id
SELECT i.unit, AVG(c.value) FROM charts c JOIN icustays i ON c.icustay_id = i.icustay_id WHERE c.value < 300 GROUP BY i.unit
----
answered
====
-- case: age at admission in bands
-- from: MIMIC's derived concepts and notebooks
-- extra: 1
-- seen: p.subject_id
SELECT CASE WHEN date_diff('year', p.dob, a.admitted) < 40 THEN 'young' WHEN date_diff('year', p.dob, a.admitted) < 65 THEN 'middle' ELSE 'old' END AS band, COUNT(*) FROM patients p JOIN admissions a ON p.subject_id = a.subject_id GROUP BY band ORDER BY band
----
answered
====
-- case: admissions after an earlier one within a year
-- from: MIMIC's derived concepts and notebooks
SELECT COUNT(*) FROM (SELECT subject_id, admitted, LAG(admitted) OVER (PARTITION BY subject_id ORDER BY admitted) AS before FROM admissions) AS t WHERE date_diff('day', before, admitted) < 365
----
answered
====
-- case: patients with two diagnoses at once
-- from: MIMIC's derived concepts and notebooks
SELECT COUNT(*) FROM (SELECT subject_id FROM diagnoses WHERE code IN ('4019', '25000') GROUP BY subject_id HAVING COUNT(DISTINCT code) = 2) AS t
----
answered
====
-- case: mean of the first value of each patient
-- from: MIMIC's derived concepts and notebooks
-- slack: 0.01
SELECT AVG(value) FROM (SELECT subject_id, value, ROW_NUMBER() OVER (PARTITION BY subject_id ORDER BY icustay_id, itemid, value) AS n FROM charts WHERE itemid = 211 AND value IS NOT NULL) AS t WHERE n = 1
----
answered
====
-- case: deaths by insurance, in percent
-- from: MIMIC's derived concepts and notebooks
-- seen: subject_id
SELECT insurance, ROUND(100.0 * SUM(died) / COUNT(*), 1) AS percent FROM admissions GROUP BY insurance ORDER BY insurance
----
answered
