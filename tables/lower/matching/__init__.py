"""MATCH_RECOGNIZE as an operator: the rows of partitions, what is read of them, and what is made of matches."""
