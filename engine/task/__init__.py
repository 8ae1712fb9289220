"""One subtask at work: input gate, loop, chain, router."""
