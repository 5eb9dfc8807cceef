"""Serve trained runs over HTTP, with a page to try them in a browser.

app.py         the endpoints
schemas.py     JSON of requests and answers
batching.py    the queue and the thread that runs the models
middleware.py  errors, API keys, limits, the log and the metrics
server.py      load the runs, listen on a port, start workers
page/          the page: HTML, CSS and JavaScript
"""
