"""The HTTP server in front of the workers. It pairs halves and never touches a page."""
