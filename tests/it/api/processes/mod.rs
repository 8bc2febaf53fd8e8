//! Whole gateway processes that are killed, end or are overloaded.

mod ends;
mod killed;
mod siege;
