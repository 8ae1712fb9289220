"""Row patterns, as MATCH_RECOGNIZE of SQL has them: of the matches that begin with a row, the preferred one counts."""
