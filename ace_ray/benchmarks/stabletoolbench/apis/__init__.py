"""Backends of API calls: recorded answers, the API itself, or a simulator.

`ApiCaller` asks them in the config's order. Nothing that an agent, a simulator or an API says is
executed; all of it is bounded in size and depth, and every answer names its source.
"""
