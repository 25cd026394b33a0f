"""Estimators that are solved exactly on the samples of given clients."""
