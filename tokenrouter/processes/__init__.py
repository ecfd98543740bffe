"""What the supervisor, the zygote and their children share; free of torch and SGLang."""
