"""What to write instead: repairs of a text that does not parse, and other libraries' spellings."""
