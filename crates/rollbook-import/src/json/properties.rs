//! Properties of the cursor: it agrees with another parser and never panics.

use proptest::prelude::*;

use super::cursor::Cursor;

proptest! {
    /// The cursor takes what serde_json takes, and nothing else; the float words cannot come up.
    #[test]
    fn agrees_with_serde_json(text in "[\\[\\]{}:,\"0-9eE+.a-z\\\\ -]{0,24}") {
        let mut cursor = Cursor::new(&text);
        let ours = cursor.skip().and_then(|_| cursor.end()).is_ok();
        let theirs = serde_json::from_str::<&serde_json::value::RawValue>(&text).is_ok();
        prop_assert_eq!(ours, theirs, "{}", text);
    }

    #[test]
    fn never_panics(text in any::<String>()) {
        let mut cursor = Cursor::new(&text);
        let value = cursor.skip();
        prop_assert!(value.is_err() || value.is_ok_and(|value| text.contains(value)));
    }
}
