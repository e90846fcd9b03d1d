"""Episodes with virtual APIs: single chains or tree search, with native calls or ReAct text."""
