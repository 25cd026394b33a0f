"""Classification theory as users meet it: a population of clients with labels, its verbs and their results."""
