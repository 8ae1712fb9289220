"""Keys of keyed state: key groups, codes, slots."""
