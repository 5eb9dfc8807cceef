"""Trained runs answer over HTTP.

limits.py    how much is taken in, and how long it may take
catalog.py   names become run folders; what is served, as everybody may know it
parcels.py   what goes between the web's process and its workers
models.py    loaded runs answer parcels of rows
worker.py    the same in a process of its own
batching.py  rows of many requests become parcels of one pass, the oldest first
pool.py      workers answer parcels; one that dies is replaced
schemas.py   what requests and answers look like
problems.py  what goes wrong, in one shape
keys.py      who may ask
gate.py      what every request passes: its id, its size, its key, its line in the log
logs.py      events become lines of JSON
metrics.py   events become Prometheus' figures
records.py   a run's folder becomes what it tells of itself
making.py    a run becomes its report, or a list of its mistakes
errands.py   the same on demand, in a process of its own
browsing.py  endpoints that show what runs are
app.py       all of it as one application
server.py    the application on a port
site.py      the page's files, and what a browser may do with them
page/        what a browser is shown
"""
