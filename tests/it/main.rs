//! Every integration test, in one binary: linked once, run together.

mod api;
