"""The owner's page and the metrics, which one process serves over HTTP.

console.py  the front's side: sockets, one-time links, and the process
process.py  the process, and figures for Prometheus
app.py      the page
"""
