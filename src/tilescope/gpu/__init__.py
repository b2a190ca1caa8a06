"""What needs a real card: watching the tensor maps that a program makes."""
