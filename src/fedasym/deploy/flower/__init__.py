"""Flower: the algorithms where samples stay with the clients, each on a machine of its own."""
