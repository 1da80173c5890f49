"""One module a destination."""
