"""What clients are: populations and spectra."""
