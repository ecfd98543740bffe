"""Simulation of counts of requests, for systems too large for a chain."""
