"""Who answers an API call: recorded answers, a simulator, a stub, or the API itself.

`ApiCaller` asks them in the config's order. Nothing that an agent, a simulator or an API says is
executed; all of it is bounded in size and depth, and every answer names its source.
"""
