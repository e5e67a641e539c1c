"""The parts of jobs/flights.py."""
