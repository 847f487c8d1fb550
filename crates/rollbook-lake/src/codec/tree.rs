//! The radix tree over the contexts of one rollout: longest shared prefix, and digests that cost only new tokens.
//!
//! ```text
//!   context of row 0: 1 2 3 4 5            root -- [1 2 3] -- [4 5]        <- row 0 ends here
//!   context of row 1: 1 2 3 9                            \-- [9]           <- row 1 ends here
//! ```
//!
//! Every edge is a range of one arena, so a tree holds each new token once. A node keeps the states of the digest chain
//! at the 256-token boundaries inside its edge; a prompt's digest continues from the last state on its path.

use std::collections::HashMap;

use rollbook_schema::digest::{BLOCK_LEN as BLOCK, TokenChain};

/// State of the digest chain.
pub(super) type State = [u8; 32];

/// Number of a node; the root is 0.
pub(super) type NodeId = u32;

const ROOT: NodeId = 0;

#[derive(Debug)]
struct Node {
    parent: NodeId,
    /// Where the edge that leads here starts in the arena.
    start: usize,
    len: usize,
    /// Tokens above the edge.
    depth: usize,
    /// Smallest row whose context runs through here.
    first_row: u32,
    /// Digest states at the block boundaries in `depth + 1 ..= depth + len`.
    states: Vec<State>,
}

impl Node {
    fn end(&self) -> usize {
        self.depth + self.len
    }
}

/// A place in the tree reached by matching tokens.
#[derive(Debug, Clone, Copy)]
pub(super) struct Walk {
    node: NodeId,
    /// Tokens matched in the node's edge.
    offset: usize,
    /// Tokens matched from the root on.
    pub(super) depth: usize,
}

/// All contexts of one rollout, each token stored once.
#[derive(Debug)]
pub(super) struct Tree {
    arena: Vec<i32>,
    nodes: Vec<Node>,
    children: HashMap<(NodeId, i32), NodeId>,
    hashing: bool,
}

impl Tree {
    /// Creates an empty tree; without `hashing` it cannot give digests.
    pub(super) fn new(hashing: bool) -> Self {
        let root = Node { parent: ROOT, start: 0, len: 0, depth: 0, first_row: 0, states: Vec::new() };
        Self { arena: Vec::new(), nodes: vec![root], children: HashMap::new(), hashing }
    }

    /// Estimates the memory held, in tokens.
    pub(super) fn held(&self) -> usize {
        // A node with its entry among the children takes about 100 bytes.
        self.arena.len() + self.nodes.len() * 25
    }

    /// Starts a walk at the root.
    pub(super) fn root() -> Walk {
        Walk { node: ROOT, offset: 0, depth: 0 }
    }

    /// Follows `tokens` as far as some context does.
    pub(super) fn advance(&self, walk: &mut Walk, tokens: &[i32]) {
        let mut done = 0;
        loop {
            let node = self.node(walk.node);
            let edge = &self.arena[node.start + walk.offset..node.start + node.len];
            let matched = shared_prefix_len(edge, &tokens[done..]);
            walk.offset += matched;
            walk.depth += matched;
            done += matched;
            if matched < edge.len() || done == tokens.len() {
                return;
            }
            let Some(child) = self.children.get(&(walk.node, tokens[done])) else {
                return;
            };
            walk.node = *child;
            walk.offset = 0;
        }
    }

    /// The smallest row whose context runs through the place that `walk` has reached.
    pub(super) fn first_row(&self, walk: &Walk) -> u32 {
        self.node(walk.node).first_row
    }

    /// Adds the context prompt ‖ output of `row`, where `walk` has followed `prompt`; returns the node it ends at.
    pub(super) fn insert(&mut self, mut walk: Walk, prompt: &[i32], output: &[i32], row: u32) -> NodeId {
        if walk.depth == prompt.len() {
            self.advance(&mut walk, output);
        }
        self.split(&mut walk);
        let (depth, total) = (walk.depth, prompt.len() + output.len());
        if depth == total {
            return walk.node;
        }
        let states = if self.hashing { self.new_states(&walk, prompt, output) } else { Vec::new() };
        let start = self.arena.len();
        if depth < prompt.len() {
            self.arena.extend_from_slice(&prompt[depth..]);
            self.arena.extend_from_slice(output);
        } else {
            self.arena.extend_from_slice(&output[depth - prompt.len()..]);
        }
        let first = self.arena[start];
        let node = Node { parent: walk.node, start, len: total - depth, depth, first_row: row, states };
        let id = self.push(node);
        self.children.insert((walk.node, first), id);
        id
    }

    /// Tokens that the contexts ending at `a` and `b` share.
    pub(super) fn shared_len(&self, mut a: NodeId, mut b: NodeId) -> usize {
        // Ends grow strictly downwards, so the deeper of two different nodes is never an ancestor of the other.
        while a != b {
            if self.node(a).end() >= self.node(b).end() {
                a = self.node(a).parent;
            } else {
                b = self.node(b).parent;
            }
        }
        self.node(a).end()
    }

    /// Digest of `prompt`, a prefix of the context that ends at `node`; the tree must be hashing.
    pub(super) fn digest(&self, node: NodeId, prompt: &[i32]) -> State {
        let boundary = prompt.len() / BLOCK * BLOCK;
        let state = self.state_at(node, boundary);
        chain(&state, &prompt[boundary..], &[])
    }

    /// Makes the place of `walk` the end of a node.
    fn split(&mut self, walk: &mut Walk) {
        let id = walk.node;
        let (parent, start, depth, first_row, len) = {
            let node = self.node(id);
            (node.parent, node.start, node.depth, node.first_row, node.len)
        };
        let offset = walk.offset;
        if offset == len {
            return;
        }
        // The lower half keeps the number, since contexts end there.
        let upper = self.push(Node { parent, start, len: offset, depth, first_row, states: Vec::new() });
        let lower = &mut self.nodes[id as usize];
        lower.parent = upper;
        lower.start += offset;
        lower.len -= offset;
        lower.depth += offset;
        if self.hashing {
            let above = (depth + offset) / BLOCK - depth / BLOCK;
            let below = lower.states.split_off(above);
            self.nodes[upper as usize].states = std::mem::replace(&mut self.nodes[id as usize].states, below);
        }
        self.children.insert((parent, self.arena[start]), upper);
        self.children.insert((upper, self.arena[start + offset]), id);
        walk.node = upper;
    }

    /// Digest states at the boundaries below `walk`, down to the end of prompt ‖ output.
    fn new_states(&self, walk: &Walk, prompt: &[i32], output: &[i32]) -> Vec<State> {
        let total = prompt.len() + output.len();
        let mut boundary = walk.depth / BLOCK * BLOCK;
        let mut state = self.state_at(walk.node, boundary);
        let mut states = Vec::with_capacity((total - boundary) / BLOCK);
        while boundary + BLOCK <= total {
            let end = boundary + BLOCK;
            let head = &prompt[boundary.min(prompt.len())..end.min(prompt.len())];
            let tail = &output[boundary.max(prompt.len()) - prompt.len()..end.max(prompt.len()) - prompt.len()];
            state = chain(&state, head, tail);
            states.push(state);
            boundary = end;
        }
        states
    }

    /// Digest state after the first `boundary` tokens (a multiple of the block) of the context that ends at `node`.
    fn state_at(&self, mut node: NodeId, boundary: usize) -> State {
        if boundary == 0 {
            return [0; 32];
        }
        while self.node(node).depth >= boundary {
            node = self.node(node).parent;
        }
        let node = self.node(node);
        node.states[boundary / BLOCK - node.depth / BLOCK - 1]
    }

    fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id as usize]
    }

    fn push(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        // A row adds at most two nodes, and rows of a file are numbered in 31 bits.
        u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX)
    }
}

/// Hashes one block, given in two pieces, onto the chain.
fn chain(state: &State, head: &[i32], tail: &[i32]) -> State {
    let mut chain = TokenChain::from_state(*state);
    if tail.is_empty() {
        chain.push_block(head);
    } else {
        let mut block = [0; BLOCK];
        block[..head.len()].copy_from_slice(head);
        block[head.len()..head.len() + tail.len()].copy_from_slice(tail);
        chain.push_block(&block[..head.len() + tail.len()]);
    }
    chain.state()
}

/// Number of leading tokens that `a` and `b` share.
fn shared_prefix_len(a: &[i32], b: &[i32]) -> usize {
    // Whole pieces compare as memory; only the piece that differs is looked at token by token.
    const PIECE: usize = 512;
    let len = a.len().min(b.len());
    let mut from = 0;
    while from < len {
        let to = (from + PIECE).min(len);
        if a[from..to] != b[from..to] {
            let differs = a[from..to].iter().zip(&b[from..to]).take_while(|(x, y)| x == y).count();
            return from + differs;
        }
        from = to;
    }
    len
}
