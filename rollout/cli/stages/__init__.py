"""Steps that commands share."""
