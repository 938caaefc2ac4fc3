"""From a parsed program and its arguments' types to element types, sizes and exact domains."""
