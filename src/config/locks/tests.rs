//! Tests of the locks file.
