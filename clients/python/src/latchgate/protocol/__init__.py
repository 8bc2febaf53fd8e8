"""The rules of the client that need no input or output: what to send, what an answer means, when to try again."""
