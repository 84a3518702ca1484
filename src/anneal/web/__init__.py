"""The page a person answers on, and its HTTP interface. Nothing in here loads torch."""
