"""Agent episodes: how one runs, and how its messages become calls."""
