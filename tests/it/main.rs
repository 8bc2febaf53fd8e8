//! Tests against real servers and real files, in one binary.

#[cfg(test)]
mod lua;
#[cfg(test)]
mod redis;
#[cfg(test)]
mod support;
