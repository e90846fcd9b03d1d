"""Backends of API calls: recorded answers, the API itself, or a simulator.

`ApiCaller` tries the cache, real APIs and the simulator in this order. Texts of agents, simulators
and APIs are never executed, and their size and depth are limited. Every answer names its source.
"""
