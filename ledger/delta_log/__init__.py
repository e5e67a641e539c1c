"""What commits: the protocol of an engine, the two there are, and what both make sure of before a commit."""
