"""Time loops tiled together with the space that their steps sweep."""
