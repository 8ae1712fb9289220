"""Tables of databases, stores and lakes."""
