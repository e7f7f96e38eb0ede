"""What a host tells: constant commands, and pure parsers of their answers."""
