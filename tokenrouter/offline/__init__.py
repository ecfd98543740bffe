"""The offline engine: a deployment that belongs to one Python program."""
