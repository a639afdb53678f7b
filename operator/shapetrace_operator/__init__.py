"""The operator: watches ProfileRuns and their Jobs and pods, decides, and writes status. Reads no trace, no Secret."""
