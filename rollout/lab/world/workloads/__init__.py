"""Controllers that keep pods running: they differ in naming, in order, and in when they replace a pod."""
