"""The finish: a Job without GPUs that reads what an attempt stored, judges it across ranks and commits the manifest."""
