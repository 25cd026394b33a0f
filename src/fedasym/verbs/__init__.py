"""The verbs of theory and simulation: a world and algorithms in, a result out."""
