"""What jobs/embed.py is made of."""
