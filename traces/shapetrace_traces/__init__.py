"""Reading, indexing and judging traces; the store they lie in. Knows the contract and nothing else of ours."""
