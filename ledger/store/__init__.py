"""The stores: their protocol, the Delta store, and the in-memory specification."""
