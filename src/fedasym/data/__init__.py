"""Client data: tables as features, as a statistician would make them."""
