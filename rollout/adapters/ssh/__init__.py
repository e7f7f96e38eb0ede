"""SSH through paramiko."""
