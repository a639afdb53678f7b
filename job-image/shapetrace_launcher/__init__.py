"""The main process of the engine's container: starts the engine, notes the first cause of its end, waits for the drain.

Standard library only, Python 3.10 and later: it runs in whatever image the engine has.
"""
