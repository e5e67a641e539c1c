"""The stores: their seam, the Delta store, and the in-memory specification."""
