"""The calls of users on a queue and a claim; input is checked here."""
