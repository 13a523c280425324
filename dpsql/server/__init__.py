"""The owner's server.

serve.py           starts and stops the server
served.py          a served policy and its files
queues.py          an analyst's sessions, worker and queue of requests
calls.py           one request, and the grid of answer times
rights.py          the right to ask, checked at each request, and limits of requests
analyst_tokens.py  analysts' tokens, and those of an identity provider
connections.py     listening sockets, the server's certificate and key, and limits before login
ledger_service.py  the ledger of a worker: the front's service, and the worker's proxy
worker_process.py  the front's side of a worker process
frames.py          messages between front and worker
worker.py          the worker process
client_session.py  the answers to one client's messages
isolation.py       the operating system's limits on workers
event_log.py       the log
flight/            Arrow Flight: dpsql's own clients, and Flight SQL
postgres/          PostgreSQL's protocol
console/           the owner's page, and the metrics
"""
