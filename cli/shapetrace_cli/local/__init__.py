"""``shapetrace run-local``: the processes of a run on this machine, without Kubernetes and without root."""
