-- What the tutorials of libraries ask about: a library's members and their loans, guests of a restaurant, students, and a hundred people who each did one thing 42 times.
CREATE TABLE members AS SELECT i AS id, 'member ' || i AS name, 5 + (i * 7) % 80 AS age, ['female', 'male', 'nonbinary', 'unspecified'][1 + i % 4] AS gender,
    ['none', 'high-school', 'masters-degree', 'doctorate'][1 + (i // 4) % 4] AS education, '270' || (10 + i % 5) AS zip, (i * 3) % 51 AS books,
    CASE WHEN i % 17 = 0 THEN NULL ELSE (i * 7919) % 100000 END AS income FROM range(200) AS r(i);
CREATE TABLE loans AS SELECT i % 150 AS id, i % 9 AS book, DATE '2022-01-01' + (i % 200)::INTEGER AS day, (i % 5)::DOUBLE * 0.25 AS fine FROM range(600) AS r(i);
CREATE TABLE books AS SELECT i AS book, ['history', 'crime', 'art'][1 + i % 3] AS genre, 100 + i * 50 AS pages FROM range(10) AS r(i);
CREATE TABLE guests AS SELECT i % 120 AS guest, 1 + i % 7 AS weekday, 9 + i % 12 AS hour, 10 + (i * 13) % 90 AS minutes, ((i * 37) % 5000)::DECIMAL(6, 2) / 100 AS euros FROM range(360) AS r(i);
CREATE TABLE repeated AS SELECT i // 42 AS who, (i % 42) % 40 AS x, (i % 42)::DOUBLE / 2 AS y, ['p', 'q'][1 + i % 2] AS k FROM range(4200) AS r(i);
