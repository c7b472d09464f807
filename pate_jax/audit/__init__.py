"""What somebody else can check: `pate verify`."""
