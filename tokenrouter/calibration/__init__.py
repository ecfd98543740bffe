"""Measures a deployment in routed operation: `tokenrouter calibrate`.

Reading order: `run.py` (one calibration), `prompts.py` and `client.py` (what is asked, and how),
`share.py` with `bisection.py` and `scale.py` (a router threshold), `measuring.py` with `windows.py`
(what members measure meanwhile), `findings.py` (parameters of the throughput model), `report.py`.
"""
