"""Early stopping: draw entries in random order, and stop when a comparison is decided."""
