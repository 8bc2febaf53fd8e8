//! The layers around the operations: routes, origins and hosts, conventions, documents, overload.

mod conventions;
mod document;
mod origins;
mod overload;
mod pages;
mod routes;
