"""Who says what to whom, and when an episode is over."""
