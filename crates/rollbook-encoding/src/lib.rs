//! Chat templates and tokenizers.
