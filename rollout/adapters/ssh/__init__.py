"""SSH by paramiko: connections, keys, host keys and configurations."""
