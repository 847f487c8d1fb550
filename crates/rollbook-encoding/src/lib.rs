//! Chat templates and tokenizers: the arrow from messages to tokens, and the one back to text.
//!
//! ```text
//! request --Conversation--> messages, tools, arguments --Template--> text --Tokenizer::encode--> ids
//!                                                                    text <--Tokenizer::decode-- ids
//! ```
//!
//! Everything is given as bytes or text; nothing is read from a disk, an environment or a clock. What a template renders is,
//! byte for byte, what `transformers.apply_chat_template` renders, and ids are those of the Python `tokenizers`.

mod conversation;
mod difference;
mod error;
mod template;
mod tokenizer;

pub use conversation::{Conversation, Form};
pub use difference::{Difference, Inherited, first_difference, text_position};
pub use error::{Error, ErrorKind, Result};
pub use template::{FUEL, OUTPUT_LIMIT, Template};
pub use tokenizer::{DecodeFlags, Tokenizer};
