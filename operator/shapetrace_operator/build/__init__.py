"""Pure builders: a ProfileRun and the operator's settings in, plain Kubernetes objects out."""
