"""The host side carried by ansible-runner, with the playbooks."""
