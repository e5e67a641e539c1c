"""The calls of users on a queue and a claim, with the checks of their input."""
