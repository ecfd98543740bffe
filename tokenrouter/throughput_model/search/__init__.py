"""The best thresholds, and tables of them by number of live requests."""
