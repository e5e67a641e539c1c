"""What jobs/flights.py is made of."""
