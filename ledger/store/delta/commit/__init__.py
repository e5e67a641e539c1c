"""How a decision becomes a commit: tried again until it wins, in turns, under the locks that the storage needs."""
