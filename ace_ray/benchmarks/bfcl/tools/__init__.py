"""Run upstream's tool classes from the user's copy in a separate process, as a `Scenario`."""
