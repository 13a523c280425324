-- Empty tables would do: corpora read no rows. There are a few all the same, so that reading one would show.
CREATE TABLE visits (
    patient_id INTEGER, ward VARCHAR, city VARCHAR, disease VARCHAR, age INTEGER, amount DOUBLE, weight DOUBLE,
    week INTEGER, day DATE, urgent BOOLEAN, note VARCHAR
);
INSERT INTO visits VALUES
    (1, 'A', 'Delft', 'flu', 30, 12.5, 70, 12, DATE '2024-03-20', TRUE, '17'),
    (2, 'B', 'Leiden', 'cold', 40, 90, NULL, 12, DATE '2024-03-21', FALSE, 'not a number');
CREATE TABLE patients (patient_id INTEGER, income INTEGER);
CREATE TABLE bids (bid DECIMAL(8, 2), item VARCHAR);
CREATE TABLE orders (id INTEGER, user_id INTEGER, total INTEGER);
CREATE TABLE lines (order_id INTEGER, price INTEGER);
CREATE TABLE payments (user_id INTEGER, order_id INTEGER, amount INTEGER);
CREATE TABLE shipments (user_id INTEGER, parcel INTEGER);
CREATE TABLE shifts (nurse_id INTEGER, day DATE, hours INTEGER);
CREATE TABLE wards (ward VARCHAR, beds INTEGER);
CREATE TABLE diseases (name VARCHAR);
INSERT INTO wards VALUES ('A', 10), ('B', 20);
INSERT INTO diseases VALUES ('flu'), ('cold');
CREATE TABLE hidden (answer INTEGER);
