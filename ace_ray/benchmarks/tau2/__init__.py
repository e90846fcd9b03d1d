"""tau2-bench: agents that serve a simulated user with tools over a database."""
