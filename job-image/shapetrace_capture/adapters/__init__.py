"""One folder per engine: everything that only that engine has, but what marks its variants (`judge/markers.py`).

Imported when the engine asks for its plugin.
"""
