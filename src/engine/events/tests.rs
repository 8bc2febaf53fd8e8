//! What listeners hear, over a store that answers what the test says.
