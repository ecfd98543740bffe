"""The process that sets thresholds: measures the members, solves the model, publishes tables."""
