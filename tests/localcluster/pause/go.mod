module shapetrace.dev/localcluster/pause

go 1.24
