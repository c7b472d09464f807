"""How students learn, one file for each method."""
