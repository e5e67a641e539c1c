"""The store on Delta Lake tables: two engines on one log."""
