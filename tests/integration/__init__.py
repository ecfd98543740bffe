"""Real servers, in processes of their own, against plain Hugging Face loops."""
