"""Preflight and collector of a capture pod: from the spool to the object store."""
