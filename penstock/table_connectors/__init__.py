"""How CREATE TABLE names each connector: the options of a table become its source, its sink, or what is looked up."""
