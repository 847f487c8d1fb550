//! Where in a recipe a planner's error lies, in our words.
//!
//! The planner knows the place of some errors only; of the others, the word that the message is about is looked up in the
//! text. A message about a word that stands in a parameter's expression names the parameter instead.

mod place;
#[cfg(test)]
mod tests;
mod wording;

use std::collections::BTreeMap;

pub(crate) use place::Place;

use crate::error::{Error, ErrorKind};

/// The text a query was parsed from, and what was put into it.
pub(super) struct Origin<'a> {
    /// Name of the recipe.
    pub(super) recipe: &'a str,
    /// Text of the recipe or of one of its checks, at its own lines; none for the engine's own queries.
    pub(super) text: Option<&'a str>,
    /// Expressions that stand for parameters.
    pub(super) expressions: &'a BTreeMap<String, String>,
}

impl Origin<'_> {
    /// Turns a planner's error into one that says where in the recipe it lies.
    pub(super) fn locate(&self, error: Error) -> Error {
        let worded = wording::reword(error.message());
        let mut message = worded.message.clone();
        for (key, value) in error.context() {
            message.push_str(&format!("; {key}: {value}"));
        }
        let recipe = self.recipe;
        // What the machine lacks is nobody's fault in the text.
        if error.kind() != ErrorKind::Invalid && error.kind() != ErrorKind::Unsupported {
            return Error::new(error.kind(), format!("recipe {recipe}: {message}"));
        }
        let message = match self.place(&error, &worded) {
            Spot::Place(place) => format!("recipe {recipe}, {place}: {message}"),
            Spot::Parameter(name) => format!("recipe {recipe}, parameter `{name}`: {message}"),
            Spot::Unknown => format!("recipe {recipe}: {message}"),
        };
        Error::new(error.kind(), message)
    }

    fn place(&self, error: &Error, worded: &wording::Worded) -> Spot {
        let text = self.text.unwrap_or_default();
        if let Some(place) = error.place().filter(|place| place.stands_in(text, &worded.words)) {
            return Spot::Place(place);
        }
        if let Some(place) = worded.words.iter().find_map(|word| Place::of(text, word)) {
            return Spot::Place(place);
        }
        let parameter = self
            .expressions
            .iter()
            .find(|(_, expression)| worded.words.iter().any(|word| Place::of(expression, word).is_some()));
        parameter.map_or(Spot::Unknown, |(name, _)| Spot::Parameter(name.clone()))
    }
}

enum Spot {
    Place(Place),
    Parameter(String),
    Unknown,
}
