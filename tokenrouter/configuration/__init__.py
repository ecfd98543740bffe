"""Behind `tokenrouter.config`: where values come from, and whether they can be served."""
