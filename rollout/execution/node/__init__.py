"""One node's run, a step a phase."""
