"""Estimators on given clients, exact: variance components, expected errors, and models that are solved rather than trained."""
