"""Measures a deployment in routed operation: `tokenrouter calibrate`.

`prompts.py` has what is asked, `client.py` asks it, `measuring.py` learns the parameters of the
throughput model meanwhile, `share.py` finds a router threshold, `report.py` tells.
"""
