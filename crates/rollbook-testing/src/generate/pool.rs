//! The text that rollouts are made of: token ids with the repetition of real sources, and no source.
//!
//! A dictionary of phrases stands in for a tokenized corpus: real text repeats words and idioms far more often than
//! independent ids would. Prose is one long stream of phrases, code is chunks of a hundred numbered lines in several
//! repositories, and rollouts of one group look at the same thirty chunks again and again.

use super::draw::{Draw, Zipf};

/// Ids run from 0 to below this.
pub const VOCAB_SIZE: i32 = 200_064;
/// Ids from here on are markers of turns, never text.
const FIRST_MARKER: i32 = 200_000;

const PHRASES: usize = 60_000;
const PROSE_TOKENS: usize = 1_500_000;
const REPOSITORIES: usize = 16;
const CHUNKS: usize = 192;
const LINES: i32 = 100;
const NEWLINE: i32 = 198;
const TAB: i32 = 197;
/// Where the ids of line numbers begin.
const FIRST_NUMBER: i32 = 1_000;
const SYSTEM_TOKENS: usize = 2_600;
pub(super) const WORKING_SET: usize = 30;
/// zeta(1.3), the sum of all popularities of views.
const ZETA: f64 = 3.931_949;

/// What ends a turn of the environment and opens the assistant's.
pub(super) const ASSISTANT: [i32; 4] = [200_007, NEWLINE, 173_781, 200_008];
/// What ends the assistant's turn and opens the tool's.
pub(super) const TOOL: [i32; 4] = [200_007, NEWLINE, 17_952, 200_008];

/// The phrases, prose and repositories of one seed.
#[derive(Debug)]
pub(super) struct Pool {
    prose: Vec<i32>,
    repositories: Vec<Vec<Vec<i32>>>,
    views: Zipf,
    pub(super) system: Vec<i32>,
}

/// The chunks that a group of rollouts works on.
#[derive(Debug, Clone)]
pub(super) struct WorkingSet {
    repository: usize,
    chunks: Vec<usize>,
}

impl Pool {
    pub(super) fn new(seed: u64) -> Self {
        let mut draw = Draw::new(seed, &[0]);
        let phrases = Phrases::new(&mut draw);
        let mut prose = Vec::with_capacity(PROSE_TOKENS + 16);
        while prose.len() < PROSE_TOKENS {
            phrases.push(&mut draw, &mut prose);
        }
        let repositories = (0..REPOSITORIES)
            .map(|_| {
                // A repository has idioms of its own: it draws from a window of the dictionary half the time.
                let home = draw.below(PHRASES / 2);
                (0..CHUNKS).map(|chunk| code(&phrases, home, chunk, &mut draw)).collect()
            })
            .collect();
        let mut pool =
            Self { prose, repositories, views: Zipf::with_total(WORKING_SET, 1.3, Some(ZETA)), system: Vec::new() };
        pool.system = pool.prose(SYSTEM_TOKENS, &mut draw).to_vec();
        pool
    }

    /// A stretch of prose.
    pub(super) fn prose(&self, length: usize, draw: &mut Draw) -> &[i32] {
        let start = draw.below(self.prose.len() - length);
        &self.prose[start..start + length]
    }

    pub(super) fn working_set(&self, draw: &mut Draw) -> WorkingSet {
        let repository = draw.below(self.repositories.len());
        let mut chunks: Vec<usize> = (0..CHUNKS).collect();
        for i in 0..WORKING_SET {
            chunks.swap(i, i + draw.below(CHUNKS - i));
        }
        chunks.truncate(WORKING_SET);
        WorkingSet { repository, chunks }
    }

    /// What a tool returns: a short message, a view of a file of the working set, or lines picked from many.
    pub(super) fn observation(&self, set: &WorkingSet, draw: &mut Draw) -> Vec<i32> {
        let choice = draw.fraction();
        if choice < 0.12 {
            let length = draw.length(25.0, 0.5, 8, 80);
            return self.prose(length, draw).to_vec();
        }
        let length = draw.length(420.0, 0.9, 20, 4_000);
        let repository = &self.repositories[set.repository];
        let mut tokens = Vec::with_capacity(length + 1_200);
        if choice < 0.82 {
            let first = set.chunks[self.views.draw(draw)];
            for chunk in repository[first..].iter().chain(repository) {
                if tokens.len() >= length {
                    break;
                }
                tokens.extend_from_slice(chunk);
            }
        } else {
            while tokens.len() < length {
                let wanted = draw.between(12, 40);
                tokens.extend_from_slice(self.slice(set, wanted, draw));
            }
        }
        tokens.truncate(length);
        tokens
    }

    /// What the policy writes: thoughts, then code that quotes the working set.
    pub(super) fn answer(&self, set: &WorkingSet, draw: &mut Draw) -> Vec<i32> {
        let length = draw.length(200.0, 0.8, 25, 2_500);
        let thoughts = thoughts(length).max(10);
        let mut tokens = self.prose(thoughts, draw).to_vec();
        tokens.extend_from_slice(self.slice(set, length - thoughts, draw));
        tokens
    }

    /// Up to `length` tokens from somewhere in a chunk of the working set.
    fn slice(&self, set: &WorkingSet, length: usize, draw: &mut Draw) -> &[i32] {
        let chunk = &self.repositories[set.repository][set.chunks[draw.below(set.chunks.len())]];
        let start = draw.below(chunk.len().saturating_sub(length).max(1));
        &chunk[start..chunk.len().min(start + length)]
    }
}

/// How many tokens of an answer are thoughts, which some templates strip.
pub(super) fn thoughts(length: usize) -> usize {
    length * 3 / 5
}

/// The dictionary.
struct Phrases {
    tokens: Vec<i32>,
    ends: Vec<usize>,
    popularity: Zipf,
}

impl Phrases {
    fn new(draw: &mut Draw) -> Self {
        let ids = ids_by_popularity(draw);
        let words = Zipf::new(ids.len(), 1.1);
        let (mut tokens, mut ends) = (Vec::new(), Vec::with_capacity(PHRASES));
        for _ in 0..PHRASES {
            let length = draw.between(2, 13);
            tokens.extend((0..length).map(|_| ids[words.draw(draw)]));
            ends.push(tokens.len());
        }
        Self { tokens, ends, popularity: Zipf::new(PHRASES, 1.0) }
    }

    fn push(&self, draw: &mut Draw, out: &mut Vec<i32>) {
        let phrase = self.popularity.draw(draw);
        out.extend_from_slice(self.get(phrase));
    }

    fn get(&self, phrase: usize) -> &[i32] {
        let start = if phrase == 0 { 0 } else { self.ends[phrase - 1] };
        &self.tokens[start..self.ends[phrase]]
    }
}

/// All ids of text, the most popular first: tokenizers number what is frequent low, by and large.
fn ids_by_popularity(draw: &mut Draw) -> Vec<i32> {
    let mut ids: Vec<(f64, i32)> =
        (0..FIRST_MARKER).map(|id| (draw.normal(f64::from(id + 1_000).ln(), 1.5), id)).collect();
    ids.sort_by(|one, other| one.0.total_cmp(&other.0));
    ids.into_iter().map(|(_, id)| id).collect()
}

/// A hundred lines, numbered as agents' tools print them.
fn code(phrases: &Phrases, home: usize, chunk: usize, draw: &mut Draw) -> Vec<i32> {
    let first = i32::try_from(chunk % 8).unwrap_or(0) * LINES;
    let mut tokens = Vec::with_capacity(1_300);
    for line in 0..LINES {
        tokens.extend([FIRST_NUMBER + first + line, TAB]);
        let end = tokens.len() + draw.below(18);
        while tokens.len() < end {
            if draw.chance(0.5) {
                tokens.extend_from_slice(phrases.get(home + phrases.popularity.draw(draw) / 2));
            } else {
                phrases.push(draw, &mut tokens);
            }
        }
        tokens.push(NEWLINE);
    }
    tokens
}
