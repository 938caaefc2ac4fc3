"""polyker: tensor operators in Einstein notation, compiled by the polyhedral model."""
