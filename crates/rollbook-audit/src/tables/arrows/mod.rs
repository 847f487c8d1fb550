//! Tables of the arrows between messages, text and tokens, which need the tokenizers and templates of the lake.

mod markers;
mod parsed;
mod parts;
mod prompts;
mod rows;
mod template;
mod text;
mod unasked;

pub(super) use parsed::differences as parse_differences;
pub(super) use parts::{parts, schema as parts_schema};
pub(super) use rows::schema;
pub(super) use template::differences as template_differences;
pub(super) use text::differences as text_differences;
