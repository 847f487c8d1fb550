//! What the encoder knows of one rollout: its contexts, its messages, and which row each call is.

use std::collections::{BTreeMap, HashMap};

use super::fault::{Fault, Result};
use super::tree::{NodeId, State, Tree};

/// What the encoder reads of one call.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Call<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) index: Option<i32>,
    pub(super) parent: Option<&'a str>,
    pub(super) prompt: Option<&'a [i32]>,
    pub(super) output: Option<&'a [i32]>,
    /// The text of each message, where the request is stored without them.
    pub(super) messages: Option<&'a [&'a str]>,
    /// Whether the source gave no digest of the prompt.
    pub(super) wants_digest: bool,
}

/// How one call is stored.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Delta {
    /// Row of the base, counted from the first row this rollout holds.
    pub(super) base: Option<u32>,
    /// Tokens shared with the base's context; none where no token is or the prompt is unknown.
    pub(super) base_len: Option<usize>,
    /// Messages shared with the base.
    pub(super) messages_base_len: usize,
    pub(super) parent_prefix_len: Option<usize>,
    pub(super) prompt_digest: Option<State>,
}

#[derive(Debug)]
struct Row {
    /// Where the context ends in the tree; none where the prompt is unknown.
    end: Option<NodeId>,
    prompt_len: usize,
    has_output: bool,
    /// Last message; none where the request has no messages of its own.
    messages: Option<u32>,
}

/// The rows of one rollout that can serve as bases.
#[derive(Debug)]
pub(super) struct Rollout {
    tree: Tree,
    messages: Messages,
    rows: Vec<Row>,
    /// First row with a call id.
    by_id: HashMap<String, u32>,
    /// Latest row with a call index.
    by_index: BTreeMap<i32, u32>,
    id_bytes: usize,
}

impl Rollout {
    /// Creates a rollout without rows; without `hashing` it gives no digests.
    pub(super) fn new(hashing: bool) -> Self {
        Self {
            tree: Tree::new(hashing),
            messages: Messages::new(),
            rows: Vec::new(),
            by_id: HashMap::new(),
            by_index: BTreeMap::new(),
            id_bytes: 0,
        }
    }

    /// Estimates the memory held, in tokens of four bytes.
    pub(super) fn held(&self) -> usize {
        // A row with its entries in the two maps takes about 200 bytes beside its id.
        self.tree.held() + (self.messages.held_bytes() + self.id_bytes) / 4 + self.rows.len() * 50
    }

    /// Adds the next call and says how to store it.
    pub(super) fn push(&mut self, call: &Call<'_>) -> Result<Delta> {
        let number =
            u32::try_from(self.rows.len()).ok().ok_or(Fault::TooLarge("a rollout has more than 2^32 calls"))?;
        let reference = self.reference(call);
        let mut delta = match call.prompt {
            Some(prompt) => self.push_context(call, prompt, number),
            None => self.push_unknown(call, reference.or(number.checked_sub(1))),
        };
        delta.parent_prefix_len = reference.and_then(|other| self.prefix_len(number, other));
        delta.messages_base_len = self.push_messages(call, delta.base, number);
        if let Some(id) = call.id {
            self.id_bytes += id.len();
            self.by_id.entry(id.to_owned()).or_insert(number);
        }
        if let Some(index) = call.index {
            self.by_index.insert(index, number);
        }
        // A base without a token is one for messages only.
        if delta.base_len.is_none() && delta.messages_base_len == 0 {
            delta.base = None;
        }
        Ok(delta)
    }

    /// Tokens that the prompt of `row` shares with the context of `other`; none unless both are known.
    pub(super) fn prefix_len(&self, row: u32, other: u32) -> Option<usize> {
        let other = &self.rows[other as usize];
        let context = other.end.filter(|_| other.has_output)?;
        self.shared_len(row, context)
    }

    /// The first row with this id.
    pub(super) fn find(&self, call_id: &str) -> Option<u32> {
        self.by_id.get(call_id).copied()
    }

    fn shared_len(&self, row: u32, context: NodeId) -> Option<usize> {
        let row = &self.rows[row as usize];
        Some(self.tree.shared_len(row.end?, context).min(row.prompt_len))
    }

    /// The declared parent, else the call before: the largest call index below, else the row before.
    fn reference(&self, call: &Call<'_>) -> Option<u32> {
        match (call.parent, call.index) {
            (Some(parent), _) => self.find(parent),
            (None, Some(index)) => self.by_index.range(..index).next_back().map(|(_, row)| *row),
            (None, None) => u32::try_from(self.rows.len()).ok()?.checked_sub(1),
        }
    }

    fn push_context(&mut self, call: &Call<'_>, prompt: &[i32], number: u32) -> Delta {
        let mut walk = Tree::root();
        self.tree.advance(&mut walk, prompt);
        let shared = walk.depth;
        let first = self.tree.first_row(&walk);
        let end = self.tree.insert(walk, prompt, call.output.unwrap_or(&[]), number);
        let has_output = call.output.is_some();
        self.rows.push(Row { end: Some(end), prompt_len: prompt.len(), has_output, messages: None });
        let parent = call.parent.and_then(|id| self.find(id)).filter(|parent| {
            let context = self.rows[*parent as usize].end;
            context.and_then(|context| self.shared_len(number, context)) == Some(shared)
        });
        let base = (shared > 0).then(|| parent.unwrap_or(first));
        Delta {
            base,
            base_len: base.map(|_| shared),
            messages_base_len: 0,
            parent_prefix_len: None,
            prompt_digest: call.wants_digest.then(|| self.tree.digest(end, prompt)),
        }
    }

    fn push_unknown(&mut self, call: &Call<'_>, base: Option<u32>) -> Delta {
        self.rows.push(Row { end: None, prompt_len: 0, has_output: call.output.is_some(), messages: None });
        Delta { base, base_len: None, messages_base_len: 0, parent_prefix_len: None, prompt_digest: None }
    }

    fn push_messages(&mut self, call: &Call<'_>, base: Option<u32>, number: u32) -> usize {
        let Some(messages) = call.messages else {
            return 0;
        };
        let base = base.and_then(|base| self.rows[base as usize].messages);
        let (shared, last) = self.messages.push(base, messages);
        self.rows[number as usize].messages = Some(last);
        shared
    }
}

/// Lists of messages, each a chain of nodes towards the first message, so that a shared beginning is held once.
#[derive(Debug)]
struct Messages {
    text: String,
    nodes: Vec<Message>,
    path: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Message {
    before: u32,
    start: usize,
    len: usize,
}

impl Messages {
    /// The node of the empty list.
    const NONE: u32 = 0;

    fn new() -> Self {
        let none = Message { before: Self::NONE, start: 0, len: 0 };
        Self { text: String::new(), nodes: vec![none], path: Vec::new() }
    }

    fn held_bytes(&self) -> usize {
        self.text.len() + self.nodes.len() * size_of::<Message>()
    }

    /// Adds a list beside `base`; returns how many leading messages are the base's, and the list's last node.
    fn push(&mut self, base: Option<u32>, messages: &[&str]) -> (usize, u32) {
        self.path.clear();
        let mut node = base.unwrap_or(Self::NONE);
        while node != Self::NONE {
            self.path.push(node);
            node = self.nodes[node as usize].before;
        }
        let mut last = Self::NONE;
        let mut shared = 0;
        for (node, message) in self.path.iter().rev().zip(messages) {
            let Message { start, len, .. } = self.nodes[*node as usize];
            if self.text[start..start + len] != **message {
                break;
            }
            last = *node;
            shared += 1;
        }
        for message in &messages[shared..] {
            let node = Message { before: last, start: self.text.len(), len: message.len() };
            self.text.push_str(message);
            last = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
            self.nodes.push(node);
        }
        (shared, last)
    }
}
