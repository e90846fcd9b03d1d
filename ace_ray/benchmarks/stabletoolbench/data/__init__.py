"""The queries: read from a folder, checked, and kept in the cache by version."""
