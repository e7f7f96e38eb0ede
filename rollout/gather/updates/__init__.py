"""Having hosts look for updates."""
