"""From judgements and calls to verdicts, from verdicts to the summary."""
