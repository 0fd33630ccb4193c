"""The HTTP side: a Flask application over the queue. It never imports an engine."""
