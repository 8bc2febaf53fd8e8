//! Problems: the answers to all requests that fail, as RFC 9457 documents.

mod code;
mod document;
mod from_error;
mod report;
mod responses;

pub use code::ProblemCode;
pub use document::problems_markdown;
pub(in crate::http) use document::{
    __path_problem_page, ProblemDocument, document, problem_page, render,
};
pub(in crate::http) use from_error::{order_grant, why_it_waits};
pub(in crate::http) use report::{Extra, FieldError, PartResult, Problem};
pub(in crate::http) use responses::{add_problems, shared_responses, text_header};
