//! Sequences that begin with a part of an earlier one, walked without building them.

/// A link's base where there is none.
pub(super) const NO_BASE: u32 = u32::MAX;

/// A sequence: the first `base_len` items of an earlier one, then `own` items of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) base: u32,
    pub(super) base_len: usize,
    pub(super) own: usize,
}

impl Link {
    /// The sequence without items.
    pub(super) const EMPTY: Self = Self { base: NO_BASE, base_len: 0, own: 0 };

    /// Links to `base` past every link that would add nothing, so that each step of a walk yields an item.
    pub(super) fn new(links: &[Self], base: u32, base_len: usize, own: usize) -> Self {
        let mut base = base;
        while let Some(link) = links.get(base as usize) {
            if base_len > link.base_len {
                break;
            }
            base = link.base;
        }
        Self { base, base_len, own }
    }

    pub(super) fn len(&self) -> usize {
        self.base_len + self.own
    }
}

/// A piece of a sequence: items `from..to` among the own ones of link `at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) at: u32,
    pub(super) from: usize,
    pub(super) to: usize,
}

/// Lists the pieces of the first `len` items of sequence `at`, the last piece first.
pub(super) fn pieces(links: &[Link], at: u32, len: usize, found: &mut Vec<Piece>) {
    found.clear();
    let (mut at, mut len) = (at, len);
    while let Some(link) = links.get(at as usize) {
        if len == 0 {
            return;
        }
        if len > link.base_len {
            found.push(Piece { at, from: 0, to: len - link.base_len });
            len = link.base_len;
        }
        at = link.base;
    }
}
