//! Everything that is not success: RFC 9457 problem documents.

mod code;
mod document;
mod field;
mod from_auth;
mod from_engine;
mod locked;
mod page;
mod part_result;
mod report;
mod responses;

pub use code::ProblemCode;
pub(in crate::http) use document::{ProblemDocument, document, render};
pub(in crate::http) use field::FieldError;
pub use page::problems_markdown;
pub(in crate::http) use page::{__path_problem_page, problem_page};
pub(in crate::http) use part_result::PartResult;
pub(in crate::http) use report::{Extra, Problem};
pub(in crate::http) use responses::{add_problems, groups, shared_responses, text_header};
