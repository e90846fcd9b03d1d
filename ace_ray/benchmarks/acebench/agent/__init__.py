"""The two agent categories: how an episode runs, and how its messages become calls."""
