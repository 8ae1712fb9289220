"""The scalar functions of SQL: their types and their computation on Arrow columns, family by family."""
