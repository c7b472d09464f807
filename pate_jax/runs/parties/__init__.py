"""Several owners of private records who answer one list of queries together."""
