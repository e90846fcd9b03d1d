"""Judge answers with a model: SoPR and FAC of one answer, SoWR of two."""
