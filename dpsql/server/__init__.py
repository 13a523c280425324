"""The owner's server.

serve.py             starts and stops the server
front.py             Flight's front end
served.py            the served policy and its files
desks.py             analysts, their workers and queues
calls.py             one call of an analyst; the grid of answer times
operations.py        what a worker does
worker.py            the worker process, and its ledger
worker_process.py    starting and ending workers
ledger_service.py    the ledger as workers see it
promises.py          answers that are awaited
frames.py            messages on a pipe
isolation.py         memory and process limits
limits.py            limits of analysts
rights.py            the right to ask, checked at each request
lapses.py            reasons why a right has ended
arrivals.py          bounds on connections that are not logged in
console_protocol.py  the bounded HTTP protocol of the page
listening.py         sockets
tokens.py            tokens of analysts
event_log.py         the log
console.py           the owner's page: its process
console_process.py   its server
console_app.py       its pages
flight_sql/          Flight SQL
postgres/            PostgreSQL's protocol
"""
