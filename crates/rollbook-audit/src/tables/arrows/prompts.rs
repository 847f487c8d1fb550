//! One prompt against what the template renders of its request.

use rollbook_encoding::{
    Conversation, Difference, Error, ErrorKind, Form, Inherited, Result, Template, Tokenizer, first_difference,
};
use serde_json::{Map, Value};

/// What rendering a request tells of the prompt that ran.
#[derive(Debug)]
pub(super) enum Rendered {
    /// In one of the forms it is the prompt.
    Same,
    /// In none; the difference of the form that comes furthest.
    Differs(Difference),
    /// The template raises an exception in every form.
    Refused(Error),
    /// It cannot be rendered here.
    Failed(Error),
    /// The request holds no messages, so nothing is asked of a template.
    NoMessages,
}

/// What all prompts of one encoding share.
pub(super) struct Renderer<'a> {
    pub(super) tokenizer: &'a Tokenizer,
    pub(super) template: &'a Template,
    pub(super) template_kwargs: &'a Map<String, Value>,
    pub(super) special_tokens: &'a Map<String, Value>,
}

impl Renderer<'_> {
    /// Compares a prompt with the renderings of its request.
    pub(super) fn judge(&self, request: &str, prompt: &[i32], inherited: Inherited, now: Option<i64>) -> Rendered {
        let conversation = match Conversation::from_request(request, self.template_kwargs) {
            Ok(conversation) => conversation,
            Err(_) => return Rendered::NoMessages,
        };
        let mut tried: Vec<Conversation> = Vec::new();
        let mut furthest: Option<Difference> = None;
        let mut failure: Option<Error> = None;
        for form in Form::ALL {
            let conversation = conversation.in_form(form);
            if tried.contains(&conversation) {
                continue;
            }
            match self.difference(&conversation, prompt, inherited, now) {
                Ok(None) => return Rendered::Same,
                Ok(Some(found)) => {
                    if furthest.as_ref().is_none_or(|known| known.position < found.position) {
                        furthest = Some(found);
                    }
                }
                // What one form cannot do another can; the first one's reason is told.
                Err(error) => failure = failure.or(Some(error)),
            }
            tried.push(conversation);
        }
        match (furthest, failure) {
            (Some(difference), _) => Rendered::Differs(difference),
            (None, Some(error)) if error.kind() == ErrorKind::Refused => Rendered::Refused(error),
            (None, Some(error)) => Rendered::Failed(error),
            (None, None) => Rendered::NoMessages,
        }
    }

    fn difference(
        &self,
        conversation: &Conversation,
        prompt: &[i32],
        inherited: Inherited,
        now: Option<i64>,
    ) -> Result<Option<Difference>> {
        let own = conversation.template.as_deref().map(Template::new).transpose()?;
        let text = own.as_ref().unwrap_or(self.template).render(conversation, self.special_tokens, now)?;
        first_difference(self.tokenizer, prompt, &self.tokenizer.encode(&text)?, inherited)
    }
}
