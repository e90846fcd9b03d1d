"""The sandboxes of the agent categories; `environment.open_environment` opens one."""
