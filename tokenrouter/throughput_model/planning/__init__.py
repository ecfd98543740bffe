"""What `tokenrouter plan` reads, computes and shows."""
