"""Students: what is trained on the noisy answers and published."""
