"""The formats of records that tables name, and their options."""
