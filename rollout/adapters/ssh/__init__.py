"""SSH by paramiko: connections, keys, host keys, configurations, and worker processes for large fleets."""
