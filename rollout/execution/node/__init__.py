"""One node's update, a step a phase."""
