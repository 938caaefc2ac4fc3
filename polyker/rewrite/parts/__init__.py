"""Large programs as parts, each of which is scheduled and compiled by itself: where to cut, and the program of each part."""
