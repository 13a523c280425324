"""The owner's server.

serve.py           starts and stops the server
front.py           the Arrow Flight server
served.py          a served policy and its files
queues.py          an analyst's sessions, worker and queue of requests
calls.py           one request, and the grid of answer times
rights.py          the right to ask, checked at each request, and limits of requests
tokens.py          analysts' tokens, and those of an identity provider
connections.py     listening sockets, the server's certificate and key, and limits before login
ledger_service.py  the front's side of a worker's ledger
worker_process.py  the front's side of a worker process
frames.py          messages between front and worker
worker.py          the worker process, and its ledger
operations.py      the worker's answers to clients' messages
isolation.py       the operating system's limits on workers
event_log.py       the log
console.py         the front's side of the owner's page and of the metrics
console_app.py     the owner's page
console_process.py the process of the owner's page and of the metrics
metrics.py         figures for Prometheus
flight_sql/        Flight SQL
postgres/          PostgreSQL's protocol
"""
