"""Episodes: single chains and tree search over virtual APIs, native calls or ReAct text."""
