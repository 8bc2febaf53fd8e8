//! The configuration reference, written from the doc comments of the structs.

mod file;
mod page;
mod wrap;

pub use file::file;
pub use page::page;
