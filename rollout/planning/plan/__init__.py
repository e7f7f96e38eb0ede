"""The plan: made, explained, written down, held against the cluster, and gone on with."""
