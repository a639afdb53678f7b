"""The command line: ``shapetrace`` and, as a kubectl plugin, ``kubectl shapetrace``."""
