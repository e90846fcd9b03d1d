"""The sandboxes of the agent categories; `world.open_world` opens one."""
