"""Records that are drawn: data sets without a download."""
