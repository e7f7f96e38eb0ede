"""What commands share, in the order in which they do it: gather, plan, refuse, execute."""
