"""The verbs on clients with classes."""
