"""What the tests and the benchmark on SGLang's real classes share."""
