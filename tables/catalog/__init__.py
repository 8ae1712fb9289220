"""Tables and views by name, and the connectors that tables are made with."""
