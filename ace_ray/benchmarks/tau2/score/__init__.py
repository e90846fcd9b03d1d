"""The numbers of a run, and the files that upstream's own tools read."""
