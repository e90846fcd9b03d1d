"""Files for others: upstream's converted answers, and the result JSON."""
