//! The Merkle tree of RFC 6962 (section 2.1) over leaf hashes: root, inclusion and consistency proofs. Must not know
//! what a leaf is the hash of.
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::hash::Hash;

/// Root of the tree without leaves: SHA-256 of nothing.
pub fn empty_root() -> Hash {
    Hash(Sha256::digest([]).into())
}

/// Hash of an inner node.
pub fn node(left: Hash, right: Hash) -> Hash {
    let mut input = [1; 65];
    input[1..33].copy_from_slice(&left.0);
    input[33..].copy_from_slice(&right.0);
    Hash(Sha256::digest(input).into())
}

/// The right edge of a growing tree: all that is needed to append leaves and to know the root. At most 64 hashes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "Parts", into = "Parts")]
pub struct Frontier {
    size: u64,
    /// Roots of the complete subtrees, largest first: one for each 1 in `size`'s binary digits.
    subtrees: Vec<Hash>,
}

/// How a frontier is stored.
#[derive(Serialize, Deserialize)]
struct Parts {
    size: u64,
    subtrees: Vec<Hash>,
}

impl From<Frontier> for Parts {
    fn from(Frontier { size, subtrees }: Frontier) -> Self {
        Self { size, subtrees }
    }
}

impl TryFrom<Parts> for Frontier {
    type Error = FrontierError;
    fn try_from(Parts { size, subtrees }: Parts) -> Result<Self, FrontierError> {
        Self::from_parts(size, subtrees)
    }
}

/// A number of subtree hashes that doesn't fit the tree's size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tree of {size} leaves has {expected} complete subtrees, got {got}")]
pub struct FrontierError {
    /// Leaves of the tree.
    pub size: u64,
    /// Subtrees that such a tree has.
    pub expected: usize,
    /// Subtrees that were given.
    pub got: usize,
}

impl Frontier {
    /// From what [`Frontier::size`] and [`Frontier::subtrees`] gave.
    pub fn from_parts(size: u64, subtrees: Vec<Hash>) -> Result<Self, FrontierError> {
        let expected = size.count_ones() as usize;
        if subtrees.len() == expected {
            Ok(Self { size, subtrees })
        } else {
            Err(FrontierError { size, expected, got: subtrees.len() })
        }
    }

    /// Number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Roots of the complete subtrees, largest first.
    pub fn subtrees(&self) -> &[Hash] {
        &self.subtrees
    }

    /// Adds a leaf: one more hash on average, one a level at worst.
    pub fn append(&mut self, leaf: Hash) {
        let mut joined = leaf;
        // Each trailing 1 of the old size is a complete subtree as large as what was joined so far.
        for _ in 0..self.size.trailing_ones() {
            let Some(left) = self.subtrees.pop() else { break };
            joined = node(left, joined);
        }
        self.subtrees.push(joined);
        self.size += 1;
    }

    /// The root of the leaves so far.
    pub fn root(&self) -> Hash {
        let joined = self.subtrees.iter().copied().rev().reduce(|right, left| node(left, right));
        joined.unwrap_or_else(empty_root)
    }
}

/// Root over leaf hashes.
pub fn root(leaves: impl IntoIterator<Item = Hash>) -> Hash {
    let mut frontier = Frontier::default();
    for leaf in leaves {
        frontier.append(leaf);
    }
    frontier.root()
}

/// Proof that the leaf `index` is in the tree of the first `size` leaves; none where it isn't. Reads all of them.
pub fn inclusion_proof(leaf_at: impl Fn(u64) -> Hash, index: u64, size: u64) -> Option<Vec<Hash>> {
    let mut proof = Vec::new();
    (index < size).then(|| {
        path(&leaf_at, index, 0, size, &mut proof);
        proof
    })
}

/// Proof that the tree of the first `old` leaves is the beginning of the tree of the first `new` ones; none where it
/// is longer.
pub fn consistency_proof(leaf_at: impl Fn(u64) -> Hash, old: u64, new: u64) -> Option<Vec<Hash>> {
    let mut proof = Vec::new();
    (old <= new).then(|| {
        if 0 < old && old < new {
            subproof(&leaf_at, old, (0, new), true, &mut proof);
        }
        proof
    })
}

/// Whether `proof` shows that `leaf` is number `index` of the tree with this size and root (RFC 9162, 2.1.3.2).
pub fn verify_inclusion(leaf: Hash, index: u64, size: u64, proof: &[Hash], root: Hash) -> bool {
    if index >= size {
        return false;
    }
    let (mut at, mut last, mut joined) = (index, size - 1, leaf);
    for &sibling in proof {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            joined = node(sibling, joined);
            skip_to_right_child(&mut at, &mut last);
        } else {
            joined = node(joined, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && joined == root
}

/// Whether `proof` shows that the tree `old` (size, root) is the beginning of the tree `new` (RFC 9162, 2.1.4.2).
pub fn verify_consistency((old, old_root): (u64, Hash), (new, new_root): (u64, Hash), proof: &[Hash]) -> bool {
    if old == 0 || old >= new {
        let trivial = if old == 0 { old_root == empty_root() } else { old == new && old_root == new_root };
        return trivial && proof.is_empty();
    }
    // Where the old tree is complete, its own root is the first hash and is left out of the proof.
    let own = old.is_power_of_two().then_some(old_root);
    let mut hashes = own.into_iter().chain(proof.iter().copied());
    let Some(first) = hashes.next() else {
        return false;
    };
    let (mut at, mut last) = (old - 1, new - 1);
    let levels = at.trailing_ones();
    at >>= levels;
    last >>= levels;
    let (mut old_joined, mut new_joined) = (first, first);
    for sibling in hashes {
        if last == 0 {
            return false;
        }
        if at & 1 == 1 || at == last {
            old_joined = node(sibling, old_joined);
            new_joined = node(sibling, new_joined);
            skip_to_right_child(&mut at, &mut last);
        } else {
            new_joined = node(new_joined, sibling);
        }
        at >>= 1;
        last >>= 1;
    }
    last == 0 && old_joined == old_root && new_joined == new_root
}

/// A last node without a sibling moves up unhashed, until it is somebody's right child.
fn skip_to_right_child(at: &mut u64, last: &mut u64) {
    if *at & 1 == 0 {
        let levels = at.trailing_zeros().min(63);
        *at >>= levels;
        *last >>= levels;
    }
}

/// Largest power of two below `size`, which is at least 2.
fn split(size: u64) -> u64 {
    1 << (size - 1).ilog2()
}

/// Root of the leaves `from..to`.
fn range_root(leaf_at: &impl Fn(u64) -> Hash, from: u64, to: u64) -> Hash {
    root((from..to).map(leaf_at))
}

/// PATH of RFC 6962, section 2.1.1, for the leaves `from..to`.
fn path(leaf_at: &impl Fn(u64) -> Hash, index: u64, from: u64, to: u64, proof: &mut Vec<Hash>) {
    if to - from <= 1 {
        return;
    }
    let middle = from + split(to - from);
    if index < middle {
        path(leaf_at, index, from, middle, proof);
        proof.push(range_root(leaf_at, middle, to));
    } else {
        path(leaf_at, index, middle, to, proof);
        proof.push(range_root(leaf_at, from, middle));
    }
}

/// SUBPROOF of RFC 6962, section 2.1.2, for the leaves `from..to`, the old tree ending before `old`. `whole` says that
/// the old tree's part here is a subtree whose root the verifier already has.
fn subproof(leaf_at: &impl Fn(u64) -> Hash, old: u64, (from, to): (u64, u64), whole: bool, proof: &mut Vec<Hash>) {
    if old == to {
        if !whole {
            proof.push(range_root(leaf_at, from, to));
        }
        return;
    }
    let middle = from + split(to - from);
    if old <= middle {
        subproof(leaf_at, old, (from, middle), whole, proof);
        proof.push(range_root(leaf_at, middle, to));
    } else {
        subproof(leaf_at, old, (middle, to), false, proof);
        proof.push(range_root(leaf_at, from, middle));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::leaf;
    use proptest::prelude::*;

    fn leaves(count: u64) -> Vec<Hash> {
        (0..count).map(|n| leaf(&n.to_be_bytes())).collect()
    }

    /// MTH of RFC 6962, section 2.1, word for word.
    fn naive(leaves: &[Hash]) -> Hash {
        match leaves {
            [] => empty_root(),
            [one] => *one,
            more => {
                let k = (0..32).map(|bits| 1_usize << bits).rfind(|k| *k < more.len()).unwrap();
                node(naive(&more[..k]), naive(&more[k..]))
            }
        }
    }

    /// The test data of the Certificate Transparency project (eight leaves), as published with RFC 6962's reference code.
    #[test]
    fn known_roots() {
        let inputs: [&[u8]; 8] = [
            &[],
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            b"\x60\x61\x62\x63\x64\x65\x66\x67\x68\x69\x6a\x6b\x6c\x6d\x6e\x6f",
        ];
        let after = |count: usize| root(inputs[..count].iter().map(|input| leaf(input))).to_string();
        assert_eq!(after(0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(after(1), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
        assert_eq!(after(2), "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125");
        assert_eq!(after(3), "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77");
        assert_eq!(after(7), "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c");
        assert_eq!(after(8), "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328");
    }

    #[test]
    fn every_proof_of_every_small_tree() {
        let all = leaves(40);
        let leaf_at = |n: u64| all[usize::try_from(n).unwrap()];
        let roots: Vec<Hash> = (0..=all.len()).map(|size| naive(&all[..size])).collect();
        let root_of = |size: u64| roots[usize::try_from(size).unwrap()];
        for size in 0..=40 {
            for index in 0..size {
                let proof = inclusion_proof(leaf_at, index, size).unwrap();
                assert!(verify_inclusion(leaf_at(index), index, size, &proof, root_of(size)), "{index} in {size}");
            }
            for old in 0..=size {
                let proof = consistency_proof(leaf_at, old, size).unwrap();
                assert!(verify_consistency((old, root_of(old)), (size, root_of(size)), &proof), "{old} in {size}");
            }
            assert_eq!(inclusion_proof(leaf_at, size, size), None);
            assert_eq!(consistency_proof(leaf_at, size + 1, size), None);
        }
    }

    #[test]
    fn a_frontier_is_stored_and_checked() {
        let mut frontier = Frontier::default();
        for leaf in leaves(11) {
            frontier.append(leaf);
        }
        let json = serde_json::to_string(&frontier).unwrap();
        assert_eq!(serde_json::from_str::<Frontier>(&json).unwrap(), frontier);
        let again = Frontier::from_parts(frontier.size(), frontier.subtrees().to_vec());
        assert_eq!(again, Ok(frontier.clone()));
        assert_eq!(Frontier::from_parts(12, frontier.subtrees), Err(FrontierError { size: 12, expected: 2, got: 3 }));
        assert!(serde_json::from_str::<Frontier>(r#"{"size":1,"subtrees":[]}"#).is_err());
    }

    proptest! {
        #[test]
        fn the_frontier_has_the_naive_root(count in 0_u64..700) {
            let all = leaves(count);
            prop_assert_eq!(root(all.iter().copied()), naive(&all));
        }

        #[test]
        fn a_changed_proof_proves_nothing(size in 2_u64..300, at in any::<prop::sample::Index>(), hit in any::<prop::sample::Index>()) {
            let all = leaves(size);
            let leaf_at = |n: u64| all[usize::try_from(n).unwrap()];
            let index = at.index(all.len()) as u64;
            let proof = inclusion_proof(leaf_at, index, size).unwrap();
            let whole = naive(&all);
            prop_assert!(verify_inclusion(leaf_at(index), index, size, &proof, whole));
            prop_assert!(!verify_inclusion(leaf_at((index + 1) % size), index, size, &proof, whole));
            prop_assert!(!verify_inclusion(leaf_at(index), (index + 1) % size, size, &proof, whole));
            prop_assert!(!verify_inclusion(leaf_at(index), index, size, &proof[1..], whole));
            let mut longer = proof.clone();
            longer.push(whole);
            prop_assert!(!verify_inclusion(leaf_at(index), index, size, &longer, whole));

            let old = index.max(1);
            let old_root = naive(&all[..usize::try_from(old).unwrap()]);
            let mut proof = consistency_proof(leaf_at, old, size).unwrap();
            prop_assert!(verify_consistency((old, old_root), (size, whole), &proof));
            prop_assert!(!verify_consistency((old, whole), (size, whole), &proof) );
            prop_assert!(!verify_consistency((old, old_root), (size, old_root), &proof));
            let changed = hit.index(proof.len());
            proof[changed].0[0] ^= 1;
            prop_assert!(!verify_consistency((old, old_root), (size, whole), &proof));
        }
    }

    #[test]
    fn hostile_sizes_end() {
        assert!(!verify_inclusion(Hash([1; 32]), 0, u64::MAX, &[Hash([2; 32]); 70], Hash([3; 32])));
        assert!(!verify_inclusion(Hash([1; 32]), u64::MAX - 1, u64::MAX, &[Hash([2; 32]); 70], Hash([3; 32])));
        let proof = [Hash([2; 32]); 70];
        assert!(!verify_consistency((1 << 63, Hash([1; 32])), (u64::MAX, Hash([3; 32])), &proof));
        assert!(!verify_consistency((u64::MAX - 1, Hash([1; 32])), (u64::MAX, Hash([3; 32])), &proof));
        assert!(!verify_consistency((0, Hash([1; 32])), (5, Hash([3; 32])), &[]));
    }
}
