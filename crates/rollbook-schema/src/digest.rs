//! The frozen, public digest of token lists, and the digest of bytes.
//!
//! ```text
//! d_0 = 32 zero bytes
//! d_i = sha256(d_{i-1} ‖ block i)      blocks of 256 ids, each int32 little-endian, the last one short
//! digest = "sha256:" + hex(d_k)
//! ```
//!
//! Because the blocks are chained, the digest of a longer list costs only the blocks after the last whole one that
//! is already known: see [`TokenChain`].

use sha2::{Digest, Sha256};

/// Ids in a whole block.
pub const BLOCK_LEN: usize = 256;
const HEX: &[u8; 16] = b"0123456789abcdef";

/// Returns the digest of a whole token list.
///
/// ```
/// use rollbook_schema::digest::token_digest;
/// assert_eq!(token_digest(&[]), format!("sha256:{}", "00".repeat(32)));
/// ```
pub fn token_digest(tokens: &[i32]) -> String {
    let mut chain = TokenChain::new();
    for block in tokens.chunks(BLOCK_LEN) {
        chain.push_block(block);
    }
    chain.digest()
}

/// Returns `"sha256:"` and the hex of the plain SHA-256 of `bytes`.
///
/// ```
/// let empty = rollbook_schema::digest::bytes_digest(b"");
/// assert_eq!(empty, "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
/// ```
pub fn bytes_digest(bytes: &[u8]) -> String {
    hex_digest(&Sha256::digest(bytes).into())
}

/// Writes a raw SHA-256 the way digests stand in the lake.
pub fn hex_digest(state: &[u8; 32]) -> String {
    let mut text = String::with_capacity(71);
    text.push_str("sha256:");
    for byte in state {
        text.extend([byte >> 4, byte & 15].map(|half| char::from(HEX[usize::from(half)])));
    }
    text
}

/// The chain over a list's blocks, kept between lists that begin alike.
///
/// A chain may only go on from a state that stands after whole blocks: keep the state at the last multiple of
/// [`BLOCK_LEN`] and push the short block last, on a copy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TokenChain {
    state: [u8; 32],
}

impl TokenChain {
    /// Starts a chain at the empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on from a state that stood after whole blocks.
    pub fn from_state(state: [u8; 32]) -> Self {
        Self { state }
    }

    /// Returns the state after the blocks pushed so far.
    pub fn state(&self) -> [u8; 32] {
        self.state
    }

    /// Adds one block. Only a list's last block may be shorter than [`BLOCK_LEN`]; an empty one changes nothing.
    pub fn push_block(&mut self, block: &[i32]) {
        debug_assert!(block.len() <= BLOCK_LEN, "a block holds at most {BLOCK_LEN} ids");
        if block.is_empty() {
            return;
        }
        let mut hasher = Sha256::new();
        hasher.update(self.state);
        let mut bytes = [0_u8; BLOCK_LEN * 4];
        for (slot, token) in bytes.chunks_exact_mut(4).zip(block) {
            slot.copy_from_slice(&token.to_le_bytes());
        }
        hasher.update(bytes.get(..block.len() * 4).unwrap_or(&bytes));
        self.state = hasher.finalize().into();
    }

    /// Returns the digest of the list pushed so far.
    pub fn digest(&self) -> String {
        hex_digest(&self.state)
    }
}

/// Digests of lists that come one after another and often begin alike, as the prompts of a rollout do: equal leading
/// blocks are compared, not hashed again.
#[derive(Debug, Default)]
pub struct AlikeLists<'a> {
    last: &'a [i32],
    /// States after the whole blocks of the last list.
    states: Vec<[u8; 32]>,
}

/// A list and its digest's states, for lists that come later.
#[derive(Debug, Default)]
pub struct KeptList {
    tokens: Vec<i32>,
    states: Vec<[u8; 32]>,
}

impl<'a> AlikeLists<'a> {
    /// Starts without a list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Starts behind a list that was kept.
    pub fn after(kept: &'a KeptList) -> Self {
        Self { last: &kept.tokens, states: kept.states.clone() }
    }

    /// Keeps the last list, if it has more than `blocks` blocks.
    pub fn keep(self, blocks: usize) -> Option<KeptList> {
        (self.states.len() > blocks).then(|| KeptList { tokens: self.last.to_vec(), states: self.states })
    }

    /// Returns the digest of the next list.
    pub fn digest(&mut self, tokens: &'a [i32]) -> String {
        let blocks = tokens.chunks_exact(BLOCK_LEN);
        let rest = blocks.remainder();
        let alike = blocks.clone().zip(self.last.chunks_exact(BLOCK_LEN)).take_while(|(block, last)| block == last);
        self.states.truncate(alike.count());
        let mut chain = self.states.last().map_or_else(TokenChain::new, |state| TokenChain::from_state(*state));
        for block in blocks.skip(self.states.len()) {
            chain.push_block(block);
            self.states.push(chain.state());
        }
        chain.push_block(rest);
        self.last = tokens;
        chain.digest()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    // The expected values come from tests/digest.py, which uses nothing but Python's hashlib and struct.
    fn counted(length: i32) -> Vec<i32> {
        (0..length).map(|i| i.wrapping_mul(7_919) % 50_000 - 3).collect()
    }

    #[test]
    fn token_digest_agrees_with_hashlib() {
        for (length, expected) in [
            (0, "0000000000000000000000000000000000000000000000000000000000000000"),
            (1, "c4caaa03be7943d517f17a00d2199b604ab546791a78c13b889acbe46bcbb01b"),
            (255, "8c571bbee8d2883f8eb04c42d44c4a79e78ef5b1e39e52f6069b2ebb833b2a2a"),
            (256, "c591abb5bd55ef95db84b4e905327076f9a949a69c06b0fc12fd2faa854fb2d1"),
            (257, "0ab239984859fbd7a7efa26e320cf6d0882042c5ea9a4d1601e748f479423036"),
            (512, "7b61eb10f37ecfe28560a7872dd8daacfe17a8238fc4fc3359322f4ea2f0f7db"),
            (1000, "cf4fa349583811754af8947cfeffb1648630ef20e00f5ffc18d8fa025b2a0ba2"),
        ] {
            assert_eq!(token_digest(&counted(length)), format!("sha256:{expected}"), "{length} ids");
        }
    }

    #[test]
    fn token_digest_covers_the_whole_int32_range() {
        assert_eq!(
            token_digest(&[i32::MIN, -1, 0, 1, i32::MAX]),
            "sha256:28fcaaccabb83386a86f7379f7cf3d1be7dffbb1fd3c6b694ce5fb3865e48986"
        );
    }

    #[test]
    fn lists_that_begin_alike_have_the_digests_they_have_alone() {
        let mut other = counted(1_000);
        other[300] = 7;
        let lists =
            [counted(0), counted(700), counted(1_000), counted(512), other, counted(256), counted(257), counted(3)];
        let mut alike = AlikeLists::new();
        for list in &lists {
            assert_eq!(alike.digest(list), token_digest(list), "{} ids", list.len());
        }
    }

    #[test]
    fn lists_after_a_kept_one_have_the_digests_they_have_alone() {
        let first = counted(1_000);
        let mut alike = AlikeLists::new();
        alike.digest(&first);
        let kept = alike.keep(2).unwrap();
        let mut other = counted(1_000);
        other[0] = 7;
        for list in [counted(1_300), counted(512), other, counted(3), counted(0)] {
            let mut alike = AlikeLists::after(&kept);
            assert_eq!(alike.digest(&list), token_digest(&list), "{} ids", list.len());
        }
        let mut alike = AlikeLists::after(&kept);
        let short = counted(600);
        alike.digest(&short);
        assert!(alike.keep(2).is_none(), "two whole blocks are no more than two");
    }

    proptest! {
        #[test]
        fn chain_from_a_kept_state_equals_the_whole_list(tokens in prop::collection::vec(any::<i32>(), 0..1_200), cut in 0_usize..5) {
            let kept = (cut * BLOCK_LEN).min(tokens.len() / BLOCK_LEN * BLOCK_LEN);
            let (head, tail) = tokens.split_at(kept);
            let mut chain = TokenChain::new();
            head.chunks(BLOCK_LEN).for_each(|block| chain.push_block(block));
            let mut chain = TokenChain::from_state(chain.state());
            tail.chunks(BLOCK_LEN).for_each(|block| chain.push_block(block));
            prop_assert_eq!(chain.digest(), token_digest(&tokens));
        }
    }
}
