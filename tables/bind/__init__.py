"""From syntax to a logical plan: names become columns, expressions get types, and what does not fit is refused."""
