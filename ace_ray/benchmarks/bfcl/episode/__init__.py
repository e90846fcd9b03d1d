"""Episodes of several model calls: multi-turn conversations, memory, web search."""
