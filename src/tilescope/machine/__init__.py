"""A kernel run without a card: instructions, memory, threads that wait for each other, and what they did."""
