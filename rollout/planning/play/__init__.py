"""The rollout played in time, at the pace of past runs."""
