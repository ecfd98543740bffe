"""Simulation of every request by itself, on drawn or recorded decisions."""
