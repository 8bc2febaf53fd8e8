"""What to send, what an answer means, when to try again: all that needs no input or output."""
