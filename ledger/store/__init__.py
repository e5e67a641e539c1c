"""Stores: the seam that each stands behind, the store on Delta tables, and the one in memory: the specification."""
