"""The sandboxes of the agent categories, opened by `environment.open_environment`."""
