"""What densities are made of: features, special functions and exact draws, for families and priors alike."""
