"""Files for others: upstream's raw and converted answers, and the seed document's result JSON."""
