"""Tables of any origin as features: dialects, missing cells, what each column is, and the recipe that does it again."""
